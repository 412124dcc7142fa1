"""Whole runs of A_online (:mod:`.chunks`) and the batch schedulers (:mod:`.batches`) in compiled loops.

For large scenarios: the kernel passes every event and order through Python. Here the same steps are compiled into one
loop, which is several times as fast. Decisions are the policies' own compiled functions; what this package repeats is
the way in between. The tables are equal, row by row: property tests hold it to that. :mod:`.which` chooses. Gangs and
elastic allocations need no such loop: their decisions are compiled as a whole (:mod:`skedge.sim.compiled`).
"""
