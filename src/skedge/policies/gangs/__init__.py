"""SRTF, Tiresias-L and Preemptive: baselines that preempt, and what gang policies share.

A gang is the workers of a job that begin together: its whole demand k_j or nothing. SRTF, Tiresias-L and FIFO
(:mod:`skedge.policies.fifo`) run gangs; Preemptive gives and takes single workers.

**Reading order.**

1. ``edge.py``: jobs in the system, what goes to the cloud, which PS a job gets: for every policy of this folder.
2. ``base.py``: gangs: from an order of the jobs to those that run, and to orders.
3. ``sharing.py``: tenants and priority classes, which arrange that order.
4. ``placement.py``: on which servers a gang runs. Where its data are: ``core/engine/data.py``.
5. ``srtf.py``, ``tiresias.py``: how each orders the jobs.
6. ``elastic.py``: what policies share that give and take single workers.
7. ``preemptive.py``: shortest job first, worker by worker.

A decision is one compiled function, `decide`, called event by event from Python, or in a compiled loop (`run`).
`run` and the two functions that Python calls, `_decide` and `_run`, are written out in each policy: numba keeps in its
cache what stands at the top of a module, and never finds there what a factory has made (``docs/decisions.md``, ADR 48).

Gang placement, upload and PS are unstated in the papers; they follow ``placement.py`` and ``base.py``. A job that is
placed leaves those that run where they are while other workers are free; ``placement=literal`` places all jobs anew at
each event, which moves running jobs on an idle cluster too. The cloud takes only what can never fit on the edge
(``allow_cloud`` changes that).

**Reference.** ``tests/reference/gang_policies.py``: SRTF, Tiresias-L and Preemptive, event by event.

SRTF
----
Shortest remaining time first, with gangs (the baseline of JSAC'22; Schrage and Miller 1966).

**Rule.** At every arrival and completion all jobs, running or not, are scanned in the order of (remaining training
time, arrival, id); a job whose whole demand is left runs, another waits and, if it was running, is preempted; the scan
continues behind it. Remaining training time is announced work left over requested workers; pending uploads do not
count.

================== ==========================
paper              here
================== ==========================
remaining time     ``view.remaining / workers``
worker requirement ``workers`` = min(D_j, GPUs of the trace)
================== ==========================

**Complexity.** O(J + I) per event, where I is how often a job overtakes another (the last order is sorted by
insertion), plus a placement per job that is moved.

Tiresias-L
----------
Discretised two-dimensional least attained service (Gu et al., NSDI'19; the baseline of JSAC'22).

**Rule.** Attained service is workers * executed time. A job starts in the first of two queues; once its attained
service reaches the limit it is demoted to the second. A pending job of the second queue that has waited at least `knob`
times as long as it has executed is promoted, and both its clocks start anew. At every event, after all demotions and
promotions that are due, jobs are scanned by (queue, first start, arrival, id), never started last; a job whose whole
demand is left runs, others wait or are preempted.
It knows no durations.

**Parameters.** The original limit, about one GPU-hour, is one worker-slot at the papers' slot of an hour: every job
would be demoted at once. Default: the quantile 9/10 of the attained service of the jobs that have finished so far,
rounded up to one of eight steps an octave (:func:`.tiresias.learn`): what outlives nine of ten jobs is long. Before a
job has finished none is demoted; who is demoted stays so when the limit rises. `knob` is infinite by default: no
promotion.

**Deviations.** D1: the official simulator notices demotions late (it does not multiply executed time by the GPUs);
here they are on time. D2: a job that the scan would preempt is pending too, and promoted if it is due, before the scan
is made again: it can be demoted, preempted and promoted at one instant. D3: time that a job holds its workers, uploads
included, counts as executed. D4: the checkpoint overhead of a resumed job is no attained service, or jobs could take
turns for ever without training: the first time for which it then holds its workers, all of it if it loses them before
the overhead has passed. A job that is moved while it runs is not resumed. D5: the default limit follows all service
that a job has attained, what it attained before a promotion too.

**Complexity.** O(J log J) per event.

Preemptive
----------
The shortest job first takes the workers that let it end earliest (the baseline of She et al.).

**Problem.** Small total completion time where taking workers from a running job is allowed. She et al. describe it in
two sentences: jobs with a shorter completion time preempt others "on the server, so that they are completed first", and
"some workers of other jobs" are preempted to remove fragments. No guarantee is known.

**Rule.** At every arrival and completion all jobs are scanned by (estimated completion, arrival, id): the remaining
announced time with min(D_j, workers of its type) workers. Each takes, of what those before it have left, either up to
D_j workers of the one server that lets it end earliest, or up to D_j of all servers: first those it has, then by
(delay, server) as long as they still help; whichever ends earlier, one server if equal. Where data are kept, the delay
to a server that has the data of as many workers as it could take counts as 0. Where ``colocation`` is ``one_server``
workers beside their PS are faster (xi = 1). Preemption is by the worker: what is not taken continues, and a new worker
begins when its data are there.

================== ==========================================================
paper              here
================== ==========================================================
xi_j               ``zeta`` of the allocation (``colocated``)
a_j, D_j           ``arrival``, ``chunks``
Delta_js           ``upload_delay``
================== ==========================================================

Whether uploads and overheads are charged is the scenario's (``charge_upload``, ``checkpoint_overhead``): She et al.
have this policy alone ignore both in Fig. 7-8, and charge them in Fig. 9-10. A worker that joins a job that ran before
pays the overhead; those that continue do not.

**Deviations.** D1: the paper's citation for this baseline is Tiresias, its text shortest-first; this is the text, and
`tiresias` is the citation. D2: decisions at arrivals and completions, where the paper decides in every slot. D3: the
cloud takes only what can never run on the edge, as for the other baselines. D4: uploads under way are taken as done
when completions are estimated. D5: a running job keeps its PS (M14), so that xi = 1 only where that is; a job that
begins counts on the slots that are free before any job is preempted.

**Complexity.** O(J + R log R + R S W) per event: J jobs in the system, of which R run, on S servers, of which a job
takes workers from at most W. Jobs that wait keep their ranks, and cost a comparison where nothing is left to take.
"""
