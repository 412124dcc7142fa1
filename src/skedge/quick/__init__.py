"""Whole runs of A_online, the batch schedulers, SRTF, Tiresias-L, strict FIFO, Preemptive and DRF in compiled loops.

For large scenarios: the kernel passes every event and order through Python. On typed slots the same steps are compiled
here into one loop, which is several times as fast. Allocations begin and end by the engine's transitions
(:mod:`skedge.core.engine`), in both. Decisions are the policies' own compiled functions; what this package repeats is
the way in between. The tables are equal, row by row: property tests hold it to that.

Reading order for gangs: :mod:`.state` (the policy's arrays), :mod:`.decide` (a decision of each policy), :mod:`.loop`
(events); for elastic allocations: :mod:`.taking`, :mod:`.preemptive`, :mod:`.drf`, :mod:`.each_loop`;
:mod:`.simulate` (which runs take this path, and the record). A_online is in :mod:`.chunks`, Batch and BatchSche in
:mod:`.batches`; :mod:`.which` chooses.
"""
