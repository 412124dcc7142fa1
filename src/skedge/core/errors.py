"""The errors that skedge raises.

::

    SkedgeError
    ├── InputError            a file, a field or an option is wrong: where, what, and what would be right
    │   ├── ScenarioError     a scenario file or the jobs and servers that it names
    │   ├── TraceError        a trace file
    │   └── PolicyError       an unknown policy, or a parameter that it does not take
    │       └── UnknownColumnError    a policy asks for a column that the jobs do not have
    ├── OrderError            a policy's order breaks a rule; has the rule's name
    ├── StuckError            a simulation in which no job gets any further
    ├── StateError            the kernel's books are inconsistent (a bug in skedge or the world)
    ├── SolverError           a solver failed or ran out of time
    ├── RunFolderError        a run folder that exists, is missing or is incomplete
    └── TrainingError         a live job cannot be trained: its factory, its data, its loss, its checkpoint
"""

from __future__ import annotations


class SkedgeError(Exception):
    """Base class of all errors that skedge raises."""


class InputError(SkedgeError):
    """An input by the user is wrong; the message says where, and what would be right."""


class ScenarioError(InputError):
    """A scenario, its jobs or its servers are wrong."""


class TraceError(InputError):
    """A trace file cannot be read in the given format."""


class PolicyError(InputError):
    """A policy is unknown, or a parameter of it is unknown or wrong."""


class UnknownColumnError(PolicyError, AttributeError):
    """A policy asks for a column that the jobs do not have; the message lists the columns."""


class OrderError(SkedgeError):
    """A policy's order breaks a rule of the model (``docs/model.md``)."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(f"[{rule}] {message}")
        self.rule, self.message = rule, message

    def __reduce__(self) -> tuple[type[OrderError], tuple[str, str]]:
        """Keep the rule when the error is sent from another process."""
        return type(self), (self.rule, self.message)


class StuckError(SkedgeError):
    """A simulation would not end: no job gets any further; names the jobs."""


class StateError(SkedgeError):
    """The kernel's books are inconsistent."""


class SolverError(SkedgeError):
    """A solver failed or ran out of time; the message says which."""


class RunFolderError(SkedgeError):
    """A run folder already exists, is missing, or is incomplete."""


class TrainingError(SkedgeError):
    """A live job cannot be trained; the message says why."""
