"""DRF: dominant resource fairness (Ghodsi et al., NSDI'11), on typed slots, on servers with resources, and at sites.

**Problem.** Share the servers among the jobs in the system so that the least dominant share, a job's largest part of
any resource, is as large as it can be, then the next, and so on (max-min).

**Rule.** At every arrival and completion the counts are filled from zero (Alg. 1, progressive filling): by (share,
arrival, id), one worker at a time.

*Typed slots*, as She et al. run it: a job uses workers of one type and one PS; its dominant share is w_j over the
workers of that type. It may have up to D_j workers, one for each chunk. A job that shrinks keeps the workers of least
(delay, server); one that grows gets the further ones by :mod:`skedge.policies.gangs.placement`. It is no gang: a new
worker trains when its data are there, the others continue. A job that had none resumes where its data are, those of
least (delay, server), before it gets others.

*Servers with resources*, as PD-ORS runs it: a worker takes alpha_i, and with it comes a PS, beta_i, whenever
ceil(w / gamma_i) grows. Up to F_i workers. Workers and PSs go to the servers round robin, each to the next one that has
room, from the first server on at every event.

*At sites*, as Okita runs it: :mod:`skedge.policies.okita` describes it.

**Guarantee.** Max-min fair up to one worker, and Pareto efficient: nothing is free that a job could use (but for F_i).
Strategy-proofness and sharing incentives of the paper need divisible tasks and users that ask for one bundle; with a
limit of workers they are not claimed.

**Reading order.**

1. ``policy.py``: which file serves which kind of cluster.
2. ``progressive_filling.py``: Alg. 1, on vectors of resources; compiled.
3. ``on_slots.py``: typed slots; which jobs shrink, which grow, and where; compiled.
4. ``on_resources.py``: servers with resources.
5. ``skedge/policies/okita/baselines.py``: at sites.

================== ===================================== ===================================
paper              on typed slots                        on servers with resources
================== ===================================== ===================================
R, C               workers by type; inf for PSs          resources, summed over the servers
D_i                one worker; with the first one PS     one worker; every gamma-th with a PS
U_i                ``COUNTS``                            workers and PSs by server
s_i                w_j / workers of the type             max_r (alpha w + beta s) / C
================== ===================================== ===================================

**Reference.** ``tests/reference/drf.py``: Alg. 1 of the paper on pooled resources, in exact fractions, and on machines.

**Deviations.** D1: a job that does not fit drops out and the others continue (a public re-implementation stops there;
the paper lets the user drop out). *Typed slots*: D2: the PS is no share: each job has one, so it ranks no job; where
there is no cloud, a job for which none is left gets nothing. D3: counts are dynamic, and new workers pay the upload;
``counts=fixed``: a job that trains keeps its workers, as (2c) and (2d) of She et al. have it, and what is free is
filled among the jobs that have none. D4: the cloud is excluded, being without limit; it takes only
what can never run on the edge. D5: k_j is ignored. *Resources*: D6: PD-ORS is silent on when counts change; here at
every event, from scratch, and a job whose place changes is moved. The horizon plays no part: what is not done by then
continues.

**Complexity.** O(W (T + log J)) per event for W workers of T types, plus a placement per job that grows; O(W (H R + log
J)) on H servers with R resources.
"""
