"""Who may ask what of a service: its own token, and named tokens with a role.

A named token is shown once, when it is made; its SHA-256 is kept in ``tokens.json`` of the state, which the service
reads again when it has changed. So tokens are added, revoked and replaced while it runs.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from pathlib import Path

from skedge.core.errors import InputError

from .settings import write_aside
from .states import ROLES
from .watched import Watched

TOKENS = "tokens.json"

OWN = "own"
"""Name of the service's own token."""

who: ContextVar[str] = ContextVar("who", default=OWN)
"""Name of the token of the request that is answered."""


@dataclass(frozen=True)
class Token:
    """A token: its name, its role, and its SHA-256."""

    name: str
    role: str
    sha256: str

    def may(self, role: str) -> bool:
        """Whether it may do what needs `role`: each role may what those before it may."""
        return ROLES.index(self.role) >= ROLES.index(role)


class Tokens:
    """The tokens that a service accepts.

    Parameters
    ----------
    own
        The service's own token, which may everything.
    """

    def __init__(self, folder: Path, own: str) -> None:
        mine = Token(OWN, ROLES[-1], _hash(own))
        self._by_hash = Watched(
            folder / TOKENS, lambda: {token.sha256: token for token in (*read_tokens(folder), mine)}
        )

    def of(self, token: str) -> Token | None:
        """The token of this text; None if it is not accepted."""
        return self._by_hash.content.get(_hash(token))


def read_tokens(state: Path) -> list[Token]:
    """The named tokens of a state.

    Raises
    ------
    InputError
        If the file is damaged.
    """
    path = state / TOKENS
    try:
        return [Token(**row) for row in json.loads(path.read_text(encoding="utf-8"))]
    except FileNotFoundError:
        return []
    except (TypeError, ValueError) as error:
        raise InputError(f"{path}: holds no tokens; remove it and make them again") from error


def add_token(state: Path, name: str, role: str) -> str:
    """Add a token, or replace that of the same name; returns its text, which is kept nowhere.

    Raises
    ------
    InputError
        If the role or the name is wrong.
    """
    if role not in ROLES:
        raise InputError(f"role {role!r}: must be one of {', '.join(ROLES)}")
    if name == OWN or not name.isprintable() or not 0 < len(name) <= 64:
        raise InputError(f"token {name!r}: a name has 1 to 64 printable characters and is not {OWN!r}")
    text = secrets.token_urlsafe(32)
    _write(state, [*(token for token in read_tokens(state) if token.name != name), Token(name, role, _hash(text))])
    return text


def revoke_token(state: Path, name: str) -> None:
    """Remove a token.

    Raises
    ------
    InputError
        If there is none of that name.
    """
    tokens = read_tokens(state)
    kept = [token for token in tokens if token.name != name]
    if len(kept) == len(tokens):
        raise InputError(
            f"token {name!r} is not there; there are {', '.join(token.name for token in tokens) or 'none'}"
        )
    _write(state, kept)


def _write(state: Path, tokens: list[Token]) -> None:
    if not state.is_dir():
        raise InputError(f"{state}: is no folder of a service's state")
    write_aside(state / TOKENS, json.dumps([asdict(token) for token in tokens], indent=2) + "\n")


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
