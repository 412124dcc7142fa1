"""PD-ORS: online scheduling of training jobs whose workers and PSs may share machines (Yu et al., TNSE).

**Problem.** A job needs E K samples processed within its slots, with at most F workers in a slot and one PS per gamma
workers; a worker is faster if all of the job's workers and PSs are on one machine. Machines have several resources.
Maximise the total utility of the admitted jobs, online (DMLRS, (3)-(7)).

**Algorithm.** Alg. 1: a job is offered once, on arrival; it is admitted for good, with its placement in every slot, if
its utility exceeds its cost at the present prices, and prices rise with what it takes. Alg. 2 chooses the completion,
Alg. 3 spreads the work over the slots by dynamic programming, and Alg. 4 gives the cost theta(t, v) of v levels of work
in slot t: the cheaper of the internal case, one machine, and the external case, the linear relaxation of Problem (23)
and S randomized roundings of its solution.

**Guarantee.** With probability above (1 - (delta/3)^S)^(T K E), 6 G/delta max_r(1, ln U^r/L)-competitive (Theorem 5);
at the paper's own sizes the bounds behind it are empty (:func:`.alg4.cover_bound`), see ``docs/errata-pdors.md``.

**Reading order.** ``docs/examples/pdors.py`` is Alg. 1 step by step, with the objects of these files.

1. ``job.py``: Eqs. (1) and (2), a job and its two rates; the work levels in which Alg. 3 counts.
2. ``prices.py``: Eqs. (12)-(14), the price functions and their constants; what is allocated.
3. ``admission.py``: Alg. 1, the offer; Alg. 2, the best completion; Alg. 3, the dynamic program.
4. ``alg4.py``: Alg. 4, theta(t, v): the internal and the external case, G_delta; the policy and its parameters.
5. ``rounding.py``: Alg. 4 lines 8-12, Problem (23): its relaxation by HiGHS, randomized rounding, repair.
6. ``parametric_lp.py``: Alg. 4 line 8 fast: the relaxation for all work levels of a slot in one sweep.
7. ``policy.py``: plans carried out slot by slot, as orders.
8. ``explain.py``: utility against cost by completion, for ``skedge explain``.

====================== ======================================= =========================
paper                  here                                    unit
====================== ======================================= =========================
a_i, E_i, K_i, F_i ... :mod:`.job` has the table of a job
w_ih[t], s_ih[t]       SlotPlan.workers, SlotPlan.ps
rho_h^r[t], p_h^r[t]   PricedLoads.load, PricedLoads.price               , utility per unit, slot
Q_h^r, U^r, L, mu      :class:`.prices.Prices`                 utility per unit, slot
Theta(t, v)            :func:`.admission.prefix_table`         utility
theta(t, v)            :meth:`.alg4.PdorsAdmission.slot_costs`          utility
lambda_i               Plan.payoff                             utility
v, W_1                 ``Levels.steps``, ``Levels.workers``    , workers, real
G_delta, S             gain, tries
====================== ======================================= =========================

**Reference.** ``tests/reference/pdors.py``: Alg. 1 to 4 in the paper's order, with ``pdors_by_enumeration.py``.

**Deviations** from the printed pseudo-code, with their numbers in ``docs/errata-pdors.md``:

- D1 (P2) Theta(a-1, 0) = 0 and Theta(a-1, v) = inf; one prefix table serves every completion of Alg. 2.
- D2 (P3) Work is counted in levels instead of samples. A slot may do more than is left, where the number of levels
  that its workers do is larger.
- D3 (P21) A plan is worth the utility of its last *active* slot.
- D4 (P25) A candidate replaces the best so far only if it is better by more than 1e-9, relatively: last slot
  ascending, work in the last slot ascending.
- D5 (P1) The external case buys PSs: a row sum s >= W_1 / gamma.
- D6 (P10, P11) w is made of the work, s = max(1, ceil(w / gamma)).
- D7 (P13) The external case is always examined after the internal one. It is left out where the optimum of its
  relaxation is not below the internal cost: no placement that satisfies (24)-(26) is cheaper.
- D8 (P14, P15) S attempts, the cheapest that holds; else repair; else theta = inf, counted in
  ``PdorsAdmission.outcomes``.
- D9 (P16) G = 1 by default; machines that cannot hold one worker (PS) host none in the relaxation.
- D10 (P9) Capacity is kept by the sub-problem's rows, not by the price.
- D11 A job that is seen within a slot is offered the next one, from which its training time is counted.
- D12 Work that outlives its plan (announced times were wrong, a server went out of service) continues slot by slot:
  where it was if that is free, else on the first machines with room, with fewer workers if need be. Planned jobs go
  first.
- D13 A job whose work is done before its plan ends leaves its reservation in the books, and so in the prices: what a
  run learns does not change them.

**Complexity.** A job: T sweeps of O(pivots R H), T V' roundings of S O(machines that the solution uses), and the
dynamic program, O(T V' min(V', 2 F)) with V' levels.
"""
