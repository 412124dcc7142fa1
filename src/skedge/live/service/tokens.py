"""Who may ask what of a service: its own token, and named tokens with a role.

A named token is shown once, when it is made; its SHA-256 is kept in ``tokens.json`` of the state, which the service
reads again when it has changed. So tokens are added, revoked and replaced while it runs.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skedge.core.errors import InputError
from skedge.live.controller.named_entries import NamedEntries
from skedge.live.controller.reloading_file import ReloadingFile
from skedge.live.controller.settings import CLUSTER
from skedge.live.controller.states import ROLES
from skedge.scenario.file import load_cluster_file

TOKENS = "tokens.json"

OWN = "own"
"""Name of the service's own token."""


class ForbiddenError(InputError):
    """What is asked is not allowed to the token that asks."""


@dataclass(frozen=True)
class Token:
    """A token: its name, its role, its SHA-256, and the tenant whose jobs alone it is for, if any."""

    name: str
    role: str
    sha256: str
    tenant: str | None = None

    def may(self, role: str) -> bool:
        """Whether it may do what needs `role`: each role may what those before it may."""
        return ROLES.index(self.role) >= ROLES.index(role)

    def submits(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """The job spec with the token's tenant.

        Raises
        ------
        ForbiddenError
            If the spec names another.
        """
        if self.tenant is None:
            return dict(spec)
        self.check(spec.get("tenant", self.tenant))
        return {**spec, "tenant": self.tenant}

    def check(self, tenant: object) -> None:
        """Check that it may change jobs of `tenant`.

        Raises
        ------
        ForbiddenError
            If it is for another tenant.
        """
        if self.tenant not in (None, tenant):
            raise ForbiddenError(f"token {self.name!r} is for jobs of the tenant {self.tenant!r}, not of {tenant!r}")


NAMED_TOKENS = NamedEntries(TOKENS, "token", lambda row: Token(**row))
"""The named tokens of a state."""

who: ContextVar[Token] = ContextVar("who")
"""The token of the request that is answered."""


class Tokens:
    """The tokens that a service accepts.

    Parameters
    ----------
    folder
        Folder of the service's state, which has the file of tokens.
    own
        The service's own token, which may everything.
    """

    def __init__(self, folder: Path, own: str) -> None:
        own_token = Token(OWN, ROLES[-1], _hash(own))
        self._by_hash = ReloadingFile(
            folder / TOKENS, lambda: {token.sha256: token for token in (*NAMED_TOKENS.read(folder), own_token)}
        )

    def of(self, token: str) -> Token | None:
        """The token of this text; None if it is not accepted."""
        return self._by_hash.content.get(_hash(token))


def add_token(state: Path, name: str, role: str, tenant: str | None = None) -> str:
    """Add a token, or replace that of the same name; returns its text, which is kept nowhere.

    Parameters
    ----------
    state
        Folder of the service's state.
    name
        1 to 64 printable characters, and not :data:`OWN`.
    role
        One of ROLES.
    tenant
        The tenant whose jobs alone it may submit and change; None: all jobs.

    Raises
    ------
    InputError
        If the role, the name or the tenant is wrong.
    """
    if role not in ROLES:
        raise InputError(f"role {role!r}: must be one of {', '.join(ROLES)}")
    if name == OWN or not name.isprintable() or not 0 < len(name) <= 64:
        raise InputError(f"token {name!r}: a name has 1 to 64 printable characters and is not {OWN!r}")
    if tenant is not None:
        _check_tenant(state, tenant)
    text = secrets.token_urlsafe(32)
    NAMED_TOKENS.put(state, Token(name, role, _hash(text), tenant))
    return text


def _check_tenant(state: Path, tenant: str) -> None:
    sharing = load_cluster_file(state / CLUSTER).cluster.sharing
    names = [] if sharing is None else sharing.names
    if tenant not in names:
        hint = f"its tenants are {', '.join(names)}" if names else "it has no sharing"
        raise InputError(f"tenant {tenant!r}: the service's cluster has none of that name; {hint}")


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
