"""Whole runs in the compiled loops of A_online and of She's batches, and the records made of their arrays.

The loops stand beside their policies (``policies/aonline/loop.py``, ``policies/she/run.py``), whose own compiled
functions decide. :mod:`.which` chooses; :mod:`.streamed` reads jobs and writes tables as a run goes on. Gangs and
elastic allocations have no loop of their own here: theirs is a second driver of the one engine
(:mod:`skedge.sim.compiled`). Property tests hold the tables to those of the kernel, row by row.
"""
