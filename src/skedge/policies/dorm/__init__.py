"""Dorm: a cluster partitioned among jobs, for utilisation, with bounded unfairness and changes (Sun et al., 2017).

**Problem.** Each job has a partition of the servers, containers that hold its workers and PSs, which may be resized
while it runs. Keep the resources busy, each job near its fair share, and disturb few of the jobs that run.

**Rule.** At every arrival and completion the integer program of ``program.py`` is solved for the jobs in the system:
most utilisation, with sum_i |s_i - shat_i| <= ceil(theta1 2 m), m being the number of resources, and at most
ceil(theta2 |A_t and A_t-1|) changed jobs of those that run. Its solution is the new partition. If there is none the
present one is kept and newcomers wait.

**Guarantee.** Of one solution the two bounds, and a gap that is proved: ``utilisation_at_most`` in `skedge explain`.
Nothing over time. Dorm knows neither utilities nor the horizon: what is not done by then runs on.

**Reading order.**

1. ``policy.py``: when the program is solved, and what becomes of its solution.
2. ``partition.py``: the program of machines, or of pools of equal machines whose solution is placed on them.
3. ``applications.py``: jobs, bounds, shares.
4. ``program.py``: the integer program, by HiGHS.
5. ``placement.py``: from pools to machines.

======================= ==================================== =========
paper                   here                                 unit
======================= ==================================== =========
x_ih                    workers w_ih and PSs s_ih
d_i^r                   alpha_i^r, beta_i^r
n_i^min, n_i^max        1, min(F_i, ``most_workers``)
s_i                     :func:`.applications.shares`         part of C
shat_i                  :func:`.applications.fair_shares`    part of C
theta1, theta2          ``theta1``, ``theta2``
r_i                     whether anything of a job is changed
======================= ==================================== =========

**Reference.** ``tests/reference/dorm.py``: the best partition by trying every one.

**Deviations** (SMARTCOMP'17; its text is not at hand). D1: two matrices instead of containers of one kind, for PD-ORS'
ratio of workers to PSs. D2: exactly max(1, ceil(w / gamma)) PSs: with more of them utilisation as the aim would fill
servers with PSs that serve no worker. D3: s_i is of the dominant resource of gamma workers and their PS, which keeps it
linear. D4: newcomers may get nothing, if the bounds leave no other way (the paper's n^min). D5: after `nodes` nodes
the best partition known is taken. If none is known, present partitions stay, and the reason of those that wait names
the solver. D6: if no job runs, and none is found or no job is in it, DRF's filling is taken, or nothing would ever run.
D7: above
`cells` jobs x servers the program has one column for all servers of equal capacity (one for all servers, if that is
still too many). This is a relaxation, so its bound holds. What it changes is packed onto the servers, largest pieces
first; a piece without room is left out, and remaining room is filled. The newcomers alone are packed as well, beside
unchanged survivors, and the better of the two is taken. It may be further than `gap` from the optimum: at PD-ORS'
sizes the proved gaps are 1 to 4 % in the mean and 9 % at most. D8: with `stop_at_horizon` no program is solved after
the horizon, as nothing is worth anything there: present partitions stay, and once nothing runs D6 fills the cluster.

No search ends by time, so that a run is repeatable.

**Complexity.** A mixed-integer program at each event: of 2 J H integers for J jobs and H servers if J H <= `cells`,
else of 2 J for each capacity, and O(pieces H R) for the packing, R being the number of resources.
"""
