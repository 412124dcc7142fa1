"""OASiS: online scheduling of training jobs with workers and PSs on separate machines (Bao et al., INFOCOM'18).

**Problem.** As PD-ORS (:mod:`skedge.policies.pdors`), but a machine hosts workers or PSs, never both, so communication
is always external. Maximise the total utility of the admitted jobs.

**Algorithm.** Alg. 1-3 are those of PD-ORS (:mod:`skedge.policies.pdors.admission`). In a slot, w = ceil(v x^(e))
workers go to the machines where a worker is cheapest, s = max(1, ceil(w / gamma)) PSs to those where a PS is; with
counts as the only unknowns that is the optimum.

**Guarantee.** 2 alpha-competitive with alpha = max(1, ln U_1/L_1, ln U_2/L_2), as recalled from the paper.

**Reading order.**

1. ``policy.py``: the parameters, and which file serves which kind of cluster.
2. ``on_resources.py``: prices of each side and the cost of a slot, on servers with resources.
3. ``at_sites.py``: OASiS in Okita's model; with :mod:`skedge.policies.okita` ``sites.py``, ``slots.py`` and ``dta.py``.

====================== ======================================= =========================
paper                  here                                    unit
====================== ======================================= =========================
U_1, L_1, U_2, L_2     :func:`.on_resources.oasis_prices`      utility per unit, slot
theta(t, v)            :meth:`.on_resources.Oasis.slot_costs`  utility
====================== ======================================= =========================

**Reference.** ``tests/reference/pdors.py``, exact, where no machine can hold both kinds; at sites enumeration
(``tests/builders/site_baselines.py``).

**Deviations**, for the comparison with PD-ORS, whose authors gave each kind half of the machines:

- D1 PSs by the job's ratio instead of its bandwidth, and the global batch F as the limit of workers.
- D2 Work in levels that follow the job (:func:`skedge.policies.pdors.job.levels_of`) instead of data chunks x epochs:
  with one rate, x^(e), a level is what a worker does in a slot, and nothing is lost by counting so.
- D3 Prices of each side are calibrated on its own machines: L has 4 eta, eta over the capacity of the side.

At sites the papers are silent (Okita, Sec. V-A: "the optimal schedule based on the unit resource cost"; "first computes
the workload of sites at each time slot, and then transfers data online"):

- D4 There is no rejection: the best plan is always carried out. u(x) = f(T - a) - f(x), what is saved against ending at
  the horizon T, takes the place of OASiS's utility, so L is always at its least, 1e-12 of the largest U.
- D5 A site holds workers or PSs, as OASiS's servers do: workers stand at every other site, the first included, and PSs
  at the rest, so all of the exchange is paid for. With ``split_sites=false``, a stronger scheduler than the published
  one, a site holds both.
- D6 One PS, at the cheapest of its sites that holds it and leaves room for a worker; then workers, the cheapest first,
  into what is left (ties: by number).
- D7 Work is counted in levels of ceil(D / `levels`) chunks, or as many as an empty slot holds. A site trains whole
  chunks, so a level takes the workers that the sites which are filled need for it.
- D8 What a slot is planned to train goes to what the workers of each site can: local data first, as in DTA. The cost of
  bandwidth plays no part in the plan.
- D9 Books that cannot hold a job are doubled, at the same prices; a job is given up only if no empty slot holds any of
  it.

**Complexity.** On servers with resources O(T (H log H + V' H)) a job, at sites O(T V' R + T R log R) with V' levels,
and the dynamic program.
"""
