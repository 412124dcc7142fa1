"""Every error that skedge raises on purpose.

::

    SkedgeError
    ├── InputError            a file, a field or an option is wrong: says where, what, and what would be right
    │   ├── ScenarioError     a scenario file or the jobs and servers that it names
    │   ├── TraceError        a trace file
    │   └── PolicyError       an unknown policy, or a parameter that it does not take
    ├── OrderError            a policy gave an order that breaks a rule; carries the rule's name
    ├── StateError            the kernel's own books do not balance (a bug of ours)
    ├── SolverError           a solver failed or ran out of time
    ├── RunFolderError        a run folder that exists, is missing or is incomplete
    └── TrainingError         a live job cannot be trained: its factory, its data, its loss, its checkpoint
"""

from __future__ import annotations


class SkedgeError(Exception):
    """Base of every error that skedge raises on purpose."""


class InputError(SkedgeError):
    """Something that the user gave is wrong; the message says where and what would be right."""


class ScenarioError(InputError):
    """A scenario, its jobs or its servers are wrong."""


class TraceError(InputError):
    """A trace file cannot be read as the format that was named."""


class PolicyError(InputError):
    """A policy is unknown, or does not take a parameter that was given."""


class OrderError(SkedgeError):
    """A policy's order breaks a rule of the model (``docs/model.md``)."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(f"[{rule}] {message}")
        self.rule, self.message = rule, message

    def __reduce__(self) -> tuple[type[OrderError], tuple[str, str]]:
        """Keep the rule when an error comes back from another process."""
        return type(self), (self.rule, self.message)


class StateError(SkedgeError):
    """The kernel's books do not balance."""


class SolverError(SkedgeError):
    """A solver failed or ran out of time; the message says which."""


class RunFolderError(SkedgeError):
    """A run folder exists already, is missing, or is incomplete."""


class TrainingError(SkedgeError):
    """A live job cannot be trained; the message says why."""
