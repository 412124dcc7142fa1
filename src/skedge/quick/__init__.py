"""Whole runs of A_online, the batch schedulers, SRTF, Tiresias-L, strict FIFO, Preemptive and DRF in compiled loops.

For large scenarios: the policy, the kernel and the simulated world pass every event through Python, at about 0.1 ms an
event. On typed slots the same steps are compiled here into one loop, which is several times as fast. Decisions are the
policies' own compiled functions; what this package repeats is the way in between: events, books, progress of the
workers, and the rows of the record. The tables are equal to those of the other path, row by row: property tests hold it
to that.

Reading order for gangs: :mod:`.state` (the arrays), :mod:`skedge.core.engine.allocations` (an allocation begins and ends),
:mod:`.decide` (a decision of each policy), :mod:`.loop` (events); for workers that begin one by one: :mod:`.taking`,
:mod:`.preemptive` and :mod:`.drf`, :mod:`.each_loop`; :mod:`.simulate` (which runs take this path, and
the record made of the arrays). A_online is in :mod:`.chunks`, Batch and BatchSche in
:mod:`.batches`; :mod:`.which` chooses.
"""
