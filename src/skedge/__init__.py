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
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .comparison.compare import compare
    from .comparison.comparison import Comparison
    from .core.errors import SkedgeError
    from .core.model.cluster import Cluster, Job, Physics, Server, job_table
    from .core.model.scenario import Jobs, Scenario
    from .core.registry import make_policy
    from .explanation.explain import Explanation, explain
    from .recorded_run import Run
    from .scenario.file import default_scenario, load_scenario
    from .scenario.save import save_scenario
    from .simulate import run

_MODULES = {
    "Cluster": "core.model.cluster",
    "Comparison": "comparison.comparison",
    "Explanation": "explanation.explain",
    "Job": "core.model.cluster",
    "Jobs": "core.model.scenario",
    "Physics": "core.model.cluster",
    "Run": "recorded_run",
    "Scenario": "core.model.scenario",
    "Server": "core.model.cluster",
    "SkedgeError": "core.errors",
    "compare": "comparison.compare",
    "default_scenario": "scenario.file",
    "explain": "explanation.explain",
    "job_table": "core.model.cluster",
    "load_scenario": "scenario.file",
    "make_policy": "core.registry",
    "run": "simulate",
    "save_scenario": "scenario.save",
}
"""Module of each public name, imported when the name is first used, to keep `import skedge` cheap.

No module directly in the package has a public name: Python would set it as an attribute and hide the function.
"""

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


def _scenario_html(scenario: Scenario) -> str:
    """The settings of a scenario as an HTML table."""
    html: str = import_module(".report.scenario_summary", __name__).summary_html(scenario)
    return html


def _show_scenarios_in_notebooks() -> None:
    """Let IPython, if skedge is imported in a notebook, show scenarios as tables: the core makes no HTML."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is not None:
        formatter = shell.display_formatter.formatters["text/html"]
        formatter.for_type_by_name("skedge.core.model.scenario", "Scenario", _scenario_html)


_show_scenarios_in_notebooks()
