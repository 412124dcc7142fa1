"""Optimus: workers and PSs by marginal gain, from a model of each job's speed (Peng et al., EuroSys'18).

**Problem.** Minimise the sum of the jobs' remaining times, again in every slot, by choosing each job's numbers of
workers and PSs and their servers.

**Rule.** At the beginning of every slot all counts are made from scratch (``marginal_gain.allocate``): 1 worker and 1
PS for each job by (arrival, id), then again and again the task of the largest marginal gain: the remaining time that it
takes away, Q_j (t_j(p, w) - t_j(p', w')), over the dominant share that it takes. Then jobs are placed, small ones
first, each on the fewest servers over which it spreads evenly (``marginal_gain.place``). Jobs whose place changes are
moved.

**Speed.** t_j is known, that of the model (``speed=known``), or fitted by non-negative least squares from ``samples``
test runs whose times are off by a log-normal factor of sigma ``noise`` (``speed=fitted``); :mod:`.speed_model`.

**Guarantee.** None is claimed. For one resource, equal tasks and convex times the counts are optimal for their slot.

**Reading order.**

1. ``policy.py``: every slot, what the policy does.
2. ``marginal_gain.py``: Sec. 4, counts by marginal gain, then placement; compiled.
3. ``speed_model.py``: Eq. (4), how long an iteration takes.

===================== ================================ =======================
paper                 here                             unit
===================== ================================ =======================
w_j, p_j              workers and PSs of a job
Q_j                   ``left``                         iterations of F samples
f(p_j, w_j)           1 / :func:`.marginal_gain.iteration`  iterations per slot
theta_0 .. theta_4    ``speed``                        slots
===================== ================================ =======================

**Reference.** ``tests/reference/optimus.py``: a whole run, slot after slot.

**Deviations.** D1: Q_j is known from what the job announces, so no loss curve is fitted. D2: at most F_j workers, and
never more than gamma_j of them to a PS: a worker that would be one too many comes with a PS. With ``servers=ratio`` PSs
are added in no other way, as in PD-ORS' model more of them bring nothing; ``servers=free`` also weighs a PS alone. D3:
the dominant resource's amount is taken as a share, so that units do not matter; servers are ordered by what is free of
it, where the paper takes CPU. D4: "evenly" allows counts that differ by one. D5: test runs draw w and p independently
of each other, with w = p their terms could not be separated. D6: where not even one task of a job can be placed evenly
or alternately, one worker and its PSs are put wherever they fit. D7: the rate is that of external communication.

**Complexity.** O(W log J) for W tasks, and O(J H^2 R) to place them, each slot.
"""
