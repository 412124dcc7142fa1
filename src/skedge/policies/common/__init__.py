"""Parts that policies of several papers share.

- ``resource_jobs.py``: jobs in the system on servers with resources, their demands, and orders that change placements.
- ``round_robin.py``: placing workers and PSs on machines in turn; compiled.
- ``step_functions.py``: step functions of time: what is booked, or free, from each moment on; compiled.
"""
