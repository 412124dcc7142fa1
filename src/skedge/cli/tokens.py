"""``skedge token``: named tokens of a service, each with a role."""

from __future__ import annotations

from typing import Annotated

import typer

from skedge.live.controller.states import ROLES

from .console import print_answer, print_json, print_table
from .lazy import command_group
from .options import STATE, JsonOption, StateOption

token = command_group("Add, list and revoke named tokens of a service, each with a role.")

NameArgument = Annotated[str, typer.Argument(help="Name of the token, which the audit log has.")]


@token.command()
def add(
    name: NameArgument,
    role: Annotated[str, typer.Option(help=f"One of {', '.join(ROLES)}; each may what those before it may.")],
    tenant: Annotated[
        str | None, typer.Option(help="It submits, cancels and resubmits jobs of this tenant alone; default: of all.")
    ] = None,
    state: StateOption = STATE,
    as_json: JsonOption = False,
) -> None:
    """Add a token, or replace that of the same name, and print it: it is kept nowhere."""
    from skedge.live.service.tokens import add_token  # noqa: PLC0415 - takes time to import

    # shown once: the file has only its hash
    text = add_token(state, name, role, tenant)
    answer = {"name": name, "role": role, "tenant": tenant, "token": text}
    print_answer(answer, text, as_json=as_json, soft_wrap=True)


@token.command("list")
def list_tokens(state: StateOption = STATE, as_json: JsonOption = False) -> None:
    """List the names, roles and tenants of the tokens."""
    from skedge.live.service.tokens import NAMED_TOKENS  # noqa: PLC0415 - takes time to import

    tokens = NAMED_TOKENS.read(state)
    if as_json:
        print_json([{"name": token.name, "role": token.role, "tenant": token.tenant} for token in tokens])
    else:
        print_table(("name", "role", "tenant"), ((t.name, t.role, t.tenant or "all") for t in tokens))


@token.command()
def revoke(name: NameArgument, state: StateOption = STATE, as_json: JsonOption = False) -> None:
    """Revoke a token: requests with it are refused from now on."""
    from skedge.live.service.tokens import NAMED_TOKENS  # noqa: PLC0415 - takes time to import

    NAMED_TOKENS.remove(state, name)
    print_answer({"name": name}, f"token {name!r} is revoked", as_json=as_json)
