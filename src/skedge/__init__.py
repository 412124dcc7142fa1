"""skedge schedules distributed machine-learning training over edge servers and a cloud.

>>> import skedge
>>> scenario = skedge.default_scenario("demo")
>>> run = skedge.run(scenario, "aonline")
>>> run.jobs.height
400
>>> run.verify()
[]
"""

from .compare import Comparison, compare
from .core.errors import SkedgeError
from .core.model import Cluster, Job, Physics, Server, job_table
from .core.policy import make_policy
from .core.scenario import Jobs, Scenario
from .explain import Explanation, explain
from .run import Run, run
from .scenario.file import default_scenario, load_scenario
from .scenario.save import save_scenario

__all__ = [
    "Cluster",
    "Comparison",
    "Explanation",
    "Job",
    "Jobs",
    "Physics",
    "Run",
    "Scenario",
    "Server",
    "SkedgeError",
    "compare",
    "default_scenario",
    "explain",
    "job_table",
    "load_scenario",
    "make_policy",
    "run",
    "save_scenario",
]
