"""FIFO, by two rules of the literature, on typed slots, on servers with resources, and at sites.

**Rule.** ``rule=strict`` (the common one): head of line by (arrival, id); a job starts when its whole demand is free,
keeps its workers to the end, and blocks the jobs behind it (``backfill=true``: they may start before it).

``rule=earliest_server`` (She et al.): every job goes, on arrival, to the one server that can start it earliest, at
t >= arrival + upload delay, with its workers and a PS free throughout; ties: lower delay, edge before cloud, server.
The reservation is a visible plan. A job that outlives its plan keeps its workers; the plan is marked as broken and
extended, and its followers on those workers shift. What a job does not use of its plan is free again.

On servers with resources, as PD-ORS runs it (``strict`` alone): a job's workers are drawn on its arrival, uniformly
from 1 to min(``most_workers``, F_i), with max(1, ceil(w / gamma_i)) PSs; they are placed round robin, from the server
after the last one used, each on the next one that has room, and stay to the end.

At sites, as Okita runs it: :mod:`skedge.policies.okita` describes it.

``rule=earliest_server`` counts the cloud as a server, as She et al. do; ``allow_cloud`` is for ``strict`` alone.

**Reading order.**

1. ``policy.py``: the parameters, and which file serves which rule and kind of cluster.
2. ``strict.py``: ``rule=strict`` on typed slots, on top of :mod:`skedge.policies.gangs.base`.
3. ``earliest_server.py``: ``rule=earliest_server``, and the earliest gap that reservations leave; compiled.
4. ``on_resources.py``: servers with resources.
5. ``skedge/policies/okita/baselines.py``: at sites.

**Reference.** ``tests/reference/gang_policies.py``: ``rule=strict`` on typed slots; the others have cases by hand.

**Deviations.** D1: a job that can never fit on the edge goes to the cloud at once, or is rejected where there is none;
it blocks no other (``earliest_server`` without a cloud: its demand shrinks to what the largest server holds). D2: the
upload of ``earliest_server`` starts on arrival, when the server is decided. D3: on servers with resources a job whose
workers the empty cluster does not hold shrinks to what it does; when no job runs the round begins at the first server.

**Complexity.** ``strict``: O(1) per event and a placement per job, O(w H R) on H servers with R resources.
``earliest_server``: O(S L) per job, with L reservations open on a server.
"""
