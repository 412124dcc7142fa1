"""Whole runs of A_online in its compiled loop (:mod:`skedge.policies.aonline.loop`), and their records.

Reading order: :mod:`.simulate` (which runs take this path, and the record made of the arrays), :mod:`.stream` and
:mod:`.windows` (runs whose jobs are read as they arrive).
"""
