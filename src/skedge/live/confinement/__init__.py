"""Jobs' processes apart from the service, from other jobs and from the machine's users (Linux).

A job's process is forked from one that has imported PyTorch (:mod:`skedge.live.worker.job_processes`). :mod:`.keeper`
then takes from it all that the job is not to have, before a line of the job's code runs.
:class:`.confinement.Confinement` says what that is; :mod:`.usage_monitor` counts what the processes of a job use, and
ends them at the job's limits.
"""
