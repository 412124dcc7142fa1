"""A_online of She et al.: batches in doubling intervals, priced workers and parameter servers. And BatchSche.

**Problem.** Jobs arrive online; each gets, once and for good, D_u <= D_j workers of its type and one PS of its type, on
one server or spread over several, such that the total completion time sum_j (c_j - a_j) is small (MINLP (2)).

**Algorithm.** Alg. 1: at tau_i = 2^(i-1) slots the jobs that have arrived before and are not scheduled form a batch,
which owns the slots from tau_i to tau_(i+1) = 2 tau_i. Alg. 2 (A_maxsche): in turn, each job gets the deployment of the
largest utility eta = 1 - cost at the present prices, over all D_u and the two ways COST_C (one server, Alg. 3) and
COST_D (spread, Alg. 4); if eta > 0 it is accepted and prices rise, else it waits for the next batch.

**Guarantee.** The paper prints none (H25). Its parent method, doubling intervals, is 4 rho-competitive if each batch is
a dual rho-approximation of the most jobs that end inside the interval; of that the greedy keeps the interval (D4).

**Reading order.** ``docs/examples/batch.py`` is Alg. 1 and 2 with the functions of these files.

1. ``policy.py``: Alg. 1, the batches, and the orders of their outcomes.
2. ``alg2.py``: Alg. 2 lines 1-3 and 15-18, whether a job is deployed now and what it takes; compiled;
   its arrays.
3. ``deployment.py``: Alg. 2 lines 4-14, the best deployment; Alg. 3, COST_C; Alg. 4, COST_D, exact and as printed;
   compiled.
4. ``prices.py``: Eqs. (7) and (8), prices of workers and PSs by what is taken.
5. ``batchsche.py``: BatchSche (Zhang et al., MobiHoc'20), which shares all of this, and its differences;
   ``parameters.py``: the parameters of both.
6. ``run.py``: runs without events, a batch at a time.
7. ``explain.py``: the deployments that were compared, for ``skedge explain``.

============================== ========================================= ===============
paper                          here                                      unit
============================== ========================================= ===============
a_j, h_j, c_j                  arrival, start, completion                µs
E_j D_j M_j / p_j              ``view.work[job, colocated]``             worker-µs
D_j                            ``chunks``
D_u, d_j                       ``Deployment.workers``, ``.slots``        , slots
tau_i                          :attr:`.policy.Batch.tau`                 slots
Delta_js                       upload_delay(job, server)                 µs
xi_j                           ``DeploymentRequest.colocated``
W_su, P_sv                     ``LoadProfile.capacity``                  workers, PSs
f_su(t), g_sv(t)               ``LoadProfile.load``                      workers, PSs
lambda_su(t), mu_sv(t)         :func:`.prices.price`                     1/(unit slot)
theta_1, theta_2               :func:`.prices.from_zero`
y_jsu, z_jsv                   ``Allocate.where``, ``Allocate.ps``
eta_j                          max(0, ``Allocate.value``)
============================== ========================================= ===============

**Reference.** ``tests/reference/batch.py``: Alg. 1 to 4 in the paper's order, slot by slot; BatchSche too.

**Deviations** from the printed pseudo-code, with their numbers in ``docs/errata.md``:

- D1 (H1, H2) The exponent that the text of (7), (8) lost, and the factor 1/(2TSU), without which one busy worker of
  eight prices others out; ``price_norm=none`` leaves it out.
- D2 (H3, H7) D_u alone is enumerated; among equal utilities the earliest completion, then one server, then fewer
  workers.
- D3 (H4-H6, H8) min_cost is the smaller of the two costs; a job is accepted once, with the deployment of its eta.
- D4 (H9, H12) d_j is rounded up to slots, the window is [tau_i, c_j), and c_j <= tau_(i+1).
- D5 (H11, H14) Servers are compared by the price of the whole window; COST_D is exact; ``literal_cost_d`` is Alg. 4 as
  printed.
- D6 (H10) From its arrival on, a job's data are on their way to every server that has a worker of its type.
- D7 (H20, H21) Jobs by arrival and id, or ``order=shortest``; the cloud has no limit and costs nothing, or
  ``cloud_capacity`` workers and PSs of each type.
- D8 Work that outlives its plan (announced times were wrong) keeps what it holds and is planned again, for as long as
  it was to take; the next batches find it there. Without it every batch starts on an empty system.
- D9 xi follows the scenario's physics: with ``colocation: cloud`` one edge server has xi = 0.
- D10 Where servers fail (``physics.mtbf``), intervals double until they are as long as a mean repair (``mttr``), and
  stay so: the paper's servers do not fail, and a job that lost one would wait twice as long after each loss. A plan may
  take as many slots as the last power of two that has passed.

**Complexity.** Per job and batch O(D_j S k (n_S + 1)), with k steps of price on a server (at most one more than it has
workers) and n_S servers that a spread deployment uses.
"""
