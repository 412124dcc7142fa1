"""Okita: unbiased training on data that lie at many sites (Han et al.).

**Problem.** Jobs have data at all sites and train each chunk once, for all epochs, anywhere. In every slot: how many
workers at each site, where the one PS, which data move. Minimise the latency costs plus the bandwidth costs (moved data
and parameters exchanged between sites), online (MINLP (2)).

**Algorithm.** Alg. 1, in every slot: OSF plans every job alone, for each number of workers N by PA (Alg. 2) and DTA
(Alg. 3); in the order of a priority, each job gets its plan; where that no longer fits, it migrates to what is left, or
waits if N workers do not fit there either.

**Variant.** With ``fit``, which no paper has, a job whose N* workers do not fit what is left migrates with as many as
do, for l = ceil(E M / (rho N)) slots, instead of waiting.

**Guarantee.** Feasible for (2) (Theorem 1); no ratio is claimed. Each slot the first job runs, so all end.

**Reading order.** ``docs/examples/okita.py`` is Alg. 1 line by line, with the functions of these files.

1. ``sites.py``: Sec. III, the model: sites, jobs, where a job stands in a slot.
2. ``alg1.py``: Alg. 1, priorities, conflicts: keep, migrate or delay.
3. ``osf.py``: OSF, Alg. 1 lines 4-10 and 32-38: a job's best plan over all N; as printed, and with less work.
4. ``pa.py``: Alg. 2, PA: where N workers and the PS stand; the metric Q, Eq. (6).
5. ``dta.py``: Alg. 3, DTA: which data move.
6. ``slots.py``: site schedulers decide slot by slot; the driver that makes policies of them.
7. ``policy.py``: Okita as a policy.
8. ``explain.py``: the terms behind a decision, for ``skedge explain``.
9. ``baselines.py``: FIFO and DRF in Okita's model (Sec. V-A).

====================== ======================================= ===================
paper                  here                                    unit
====================== ======================================= ===================
R, K                   rows, columns of Sites.capacity
C_r^k                  Sites.capacity                          units of a resource
q^{rr'}                Sites.cost                              cost per MB (O23)
a_i                    SiteJob.arrival                         slot
rho_i / E_i            SiteJob.rate                            chunks per slot
delta_i                SiteJob.chunk_mb                        MB
pi_i                   SiteJob.exchange_mb                     MB per slot
D_i^r                  SiteJob.data                            chunks, by site
m_i^k, n_i^k           SiteJob.worker, SiteJob.ps              units of a resource
f_i                    SiteJob.latency                         cost
J_a                    SiteScheduler.active
M_i^r(t)               Progress.left                           chunks
O_i(t)                 :func:`.alg1.priorities`
N_i*, l_i*             TentativePlan.workers, .slots           , slots
cost1, cost2           Conflict.migrate_cost, .delay_cost      cost
y_i^r, s               SitePlacement.workers, SitePlacement.ps
g^{rr'}, d_i^r         Transfers.moves, Transfers.trained      chunks
bcost_i*               Progress.bandwidth                      cost
Av_r^k(t)              `free` of :meth:`.alg1.Okita.decide`    units
====================== ======================================= ===================

**Reference.** ``tests/reference/okita.py``: Alg. 1 to 3 in exact fractions, every N and every PS site.

**Deviations** from the printed pseudo-code, with their numbers in ``docs/errata-okita.md``.

Alg. 1:

- D1 (O1, O2) cost2 takes the l* of the job in the way. As printed it has the bandwidth cost of the migrated plan, so it
  is never below cost1, and a job that can migrate does. With ``conflict=cheaper`` it has the bandwidth cost of the
  tentative plan, so a job waits for that plan where this costs less.
- D2 (O3, O4) A conflict is an overdrawn resource at some site; without room to migrate to, a job is delayed.
- D3 (O5) Of several jobs in the way the one that leaves first; `release: latest` takes the last. It matters with
  ``conflict=cheaper`` alone.
- D4 (O7) A job is complete when nothing is left *after* the slot.
- D5 (O20) 0/0 in O is 0. The largest wait is among the jobs with the same kind of latency cost: deadlines are counted
  in slots, slopes in cost. For deadlines, which the printed minus sign would order the wrong way round, the wait is
  divided by the largest absolute one; `late_last` puts jobs past their deadline behind, as the text has it.
- D6 (O15) Nothing is reserved: every slot begins with all that the sites have. Ties in O: earlier arrival, lower id.

OSF:

- D7 (O26) N ends where PA finds no placement; a job with no plan at all can never run, and is reported.
- D8 (O6, O24) f is taken of the END time, t + l - a; two plans are compared by differences of f, which do not overflow.
  Ties (1e-9, relatively): the smallest N.
- D9 (O12) l does not allow for the rounding down of what a site trains, so a plan may need more slots: as printed.

PA:

- D10 (O16) A PS site that cannot hold the PS is left out; resources that a worker does not need do not count.
- D11 (O19) 0/0 in Q is 0: a resource that a site has not, no data at a site, a single site. `normalise` divides the
  second term by its largest, which brings it to [0, 1] as the other two are.
- D12 (O18) Q does not see where the PS is. `colocate` subtracts beta_2 pi q^{r r~} for PS site r~, in the unit of the
  second term, so that workers stand near the PS; off by default.
- D13 (O25) Sites of equal cost (within 1e-9, relatively): the last, as printed; of equal Q: the first.

DTA:

- D14 (O11) What a site trains, d, is not defined in print: each site first trains its own chunks, as many as its
  workers can, rounded down for the site as a whole; what is missing to min(all left, all that workers can) goes to
  what is to spare, by number of the site.
- D15 (O8) Data trained where they lie are g^{rr} = min(M^r, d^r).
- D16 (O9, O10) The donor's surplus is M - d less what it has given; receivers by number, donors by the cost to the
  receiver, ties by number.

**Complexity.** A slot: O(I (N R^2 + K R + log I)) as printed; ``osf.py`` says what is really done. PA O(R log R + R^2),
with `colocate` O(R^2 log R); DTA O(R^2).

**Where the papers are silent.** A job that arrives within a slot is considered in the next one. While a server is out
of service it has no capacity, and a job that would stand there waits; its data can be fetched all the same. Only what
does not fit even when all servers are in service is rejected.

FIFO and DRF in this model fix workers, PS and data when a job begins. A job takes the workers that its rule gives it,
where PA puts them by what is free then; all its data move at once so that every worker has an equal share (Sec. V-A:
"evenly", "in a greedy fashion"), by DTA; then each site trains what it has, and all are held until the last is done.
FIFO: N uniform in 1 .. A/2, A the workers that are free when the job arrives; no job begins before one that came
earlier. DRF: N is the job's share of a progressive filling over all jobs that are not complete, on all that the sites
have together; at least 1, at most what is free; a job that does not fit is passed over. Silent here too:

- A is counted without the PS. Where nothing is free N is drawn when the job's turn comes; so is a share in DRF.
- A job never asks for more workers than the empty sites hold, or than train all its data in one slot.
- Equal shares of the data: by largest remainder, ties by number of the site.
- A job that no empty system holds is given up, and blocks no other.
"""
