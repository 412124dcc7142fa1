"""Whole runs of the batch schedulers of She et al.: a batch at a time, as nothing is decided between two batches.

No job is preempted, and a job is complete when its workers have done its work, so that its completion is known once it
is deployed. The deployment of a job is the function that the other path calls; repeated here are the books of PSs, the
choice of the batch's jobs, and the rows of the record.

Reading order: :mod:`.state` (the arrays), :mod:`.deploy` (the jobs of a batch), :mod:`.simulate` (which runs take this
path, the batches, and the record made of the arrays).
"""
