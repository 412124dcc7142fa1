"""A_online: preemptive online scheduling over edge servers and a cloud (Wang et al., JSAC'22).

**Problem.** Jobs arrive online, each with D_j equal data chunks. Dispatch every chunk once, to a worker of the job's
type on an edge server or to the cloud, and order the chunks on each worker, so that the total completion time
sum_j (c_j - r_j) is small (MINLP (2)). A chunk is never moved; a worker may interrupt it.

**Algorithm.** Alg. 1 = A_greedy (Alg. 2: each chunk to the worker with the least increase Q of the average completion
time, Eq. (5), computed by Alg. 3) + A_ps (Alg. 5: a parameter server for every running job). Each worker runs the
highest average processing rate first: gamma = 1/(D_j p).

**Guarantee.** The paper claims (1 + eps)-speed D_max (1 + 1/eps)-competitiveness (Theorem 3). Its proof does not hold
for the printed Q (ERRATA J23, J24, see ``docs/errata.md``); with ``q_mode=fractional`` the repaired dual constraint
(6a') holds and gives 1.5 (1 + 1/eps) for fractional flow.

**Reading order.** ``docs/examples/aonline.py`` is Alg. 1 with the functions of these files.

1. ``policy.py``: Alg. 1, one decision; Alg. 5, A_ps, whose choice of a PS is in ``a_ps.py``, compiled.
2. ``a_greedy.py``: Alg. 2, A_greedy, and Alg. 3, Q of a worker and of the cloud; compiled. How a queue is projected to
   the arrival of a chunk is in :mod:`skedge.core.engine.projection`; how Q follows from what a lane will do, without a
   projection for each chunk, is in :mod:`skedge.core.engine.ahead`. ``_set_cost`` chooses between the two:
   ``cost_ahead`` where workers preempt at no cost; ``edge_cost``, by projections, with a checkpoint overhead, without
   preemption and for ``q_mode=fractional``. ``explain`` always takes ``edge_cost``.
3. ``waiting.py``: the queue of the jobs that wait for storage (Sec. VI).
4. ``explain.py``: the four terms of Eq. (5) of each candidate, for ``skedge explain``.
5. ``loop.py``: a whole run of Alg. 1 and Alg. 5, compiled, on the arrays of ``state.py``.

====================== =================================== ==========
paper                  here                                unit
====================== =================================== ==========
r_j, c_j               arrival, completion                 µs
E_j B_j                minibatches                         mini-batches
D_j                    chunks
n_jsw                  minibatches / chunk_time            per µs
E_j B_j / n_jsw = p    chunk_time[job, colocated]          µs
Delta_js               upload_delay(job, server)           µs
gamma_jd               1 / rank, rank = D_j p              1/µs
Q_jdsw                 ``cost_ahead``, ``edge_cost``       µs/scale
1/D_j                  weights[D] / scale, their LCM
(s, w)                 lane
o_jsp, v_jsw           types of PS slots and of workers
z_jsp                  :class:`skedge.core.events.AssignPS`
C_j                    :class:`.a_greedy.CostHeap`
alpha_jd               ``Dispatch.alpha``                  s
beta_sw(t)             sum of 1/D over a lane's chunks
zeta_j                 ``colocated``: 1 iff all in cloud
A(t0), A_1, A_2        :func:`skedge.core.engine.ahead.cost_ahead`
====================== =================================== ==========

**Reference.** ``tests/reference/aonline.py``: Alg. 1 to 5 in the paper's order and letters, in exact fractions.

**Deviations** from the printed pseudo-code, with their numbers in ``docs/errata.md``:

- D1 (J1-J3) Worker timelines are ordered queues; y and beta are derived, so a postponed chunk moves by the time of the
  chunk that displaced it.
- D2 (J4-J6) zeta is an argument of the cloud's Q; a worker's Q is recomputed after the chunk is on it; from the first
  cloud chunk on, all *remaining* chunks go to the cloud.
- D3 (J7-J10) Arrivals and active jobs are two sets; A_ps runs in two passes; without a free qualified PS on the edge
  the cloud's serves.
- D4 (J21, J22) Q is the marginal increase, computed from what the lane will do; ``q_mode=eq5`` is Eq. (5) as printed.
- D5 (J26) gamma uses the rounded p.
- D6 (J19) Storage: the server chosen for a chunk, from r_j to c_j; checked anew for every chunk. A job that finds no
  room waits until a job ends (the paper is silent).

**Complexity.** Per job: Q on H qualified lanes, each linear in its queue, and per chunk Q on one lane and a heap of H:
O(H K + D_j (K + log H)) with K groups on a lane. Of the jobs that wait for storage only those that fit are tried again.
"""
