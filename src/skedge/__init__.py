"""skedge schedules distributed machine-learning training over edge servers and a cloud.

>>> import skedge
>>> scenario = skedge.default_scenario("demo")
>>> run = skedge.run(scenario, "aonline")
>>> run.jobs.height
400
>>> run.verify()
[]
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .compare import compare
    from .comparison.comparison import Comparison
    from .core.errors import SkedgeError
    from .core.model.cluster import Cluster, Job, Physics, Server, job_table
    from .core.model.scenario import Jobs, Scenario
    from .core.registry import make_policy
    from .explain import Explanation, explain
    from .run import Run, run
    from .scenario.file import default_scenario, load_scenario
    from .scenario.save import save_scenario

_MODULES = {
    "Cluster": "core.model",
    "Comparison": "comparison.comparison",
    "Explanation": "explain",
    "Job": "core.model",
    "Jobs": "core.scenario",
    "Physics": "core.model",
    "Run": "run",
    "Scenario": "core.scenario",
    "Server": "core.model",
    "SkedgeError": "core.errors",
    "compare": "compare",
    "default_scenario": "scenario.file",
    "explain": "explain",
    "job_table": "core.model",
    "load_scenario": "scenario.file",
    "make_policy": "core.registry",
    "run": "run",
    "save_scenario": "scenario.save",
}
"""Module of each public name. Modules are imported when the name is first used, to keep `import skedge` cheap."""

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


def __getattr__(name: str) -> Any:
    """Import a public name from its module (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_MODULES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, imported or not."""
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """Type of the package, in which `run`, `compare` and `explain` stay functions, not the modules of the same names.

    Python sets an imported module as an attribute of its package, which would hide the function.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _MODULES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
