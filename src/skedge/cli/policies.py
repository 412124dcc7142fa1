"""``skedge policies``: the policies with their needs and parameters."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args, get_origin

import typer

from skedge.core.registry import first_line, registered

from .options import JsonOption


def policies(as_json: JsonOption = False) -> None:
    """List the policies, their needs and their parameters."""
    rows = [_policy_row(name, point) for name, point in registered().items()]
    if as_json:
        from .console import print_json  # noqa: PLC0415 - importing rich takes as long as importing all policies

        print_json(rows)
        return
    for row in rows:
        needs = f"  (needs {', '.join(row['needs'])})" if row["needs"] else ""
        typer.echo(f"{typer.style(row['name'], bold=True)}: {row['about']}{needs}")
        for parameter in row["parameters"]:
            typer.echo(f"    {parameter['name']}={parameter['default']}  {typer.style(parameter['type'], dim=True)}")


def _policy_row(name: str, point: Any) -> dict[str, Any]:
    try:
        return _description(name, point.load())
    except (Exception, SystemExit) as error:  # a foreign package can raise anything; the other policies are still shown
        return {"name": name, "about": f"cannot be loaded: {first_line(error)}", "needs": [], "parameters": []}


def _description(name: str, factory: Any) -> dict[str, Any]:
    fields = factory.Parameters.model_fields.items() if hasattr(factory, "Parameters") else ()
    parameters = [{"name": key, "default": _text(f.default), "type": _kind(f.annotation)} for key, f in fields]
    # the first line of its docstring
    about = next(iter((factory.__doc__ or "").strip().splitlines()), "")
    return {"name": name, "about": about, "needs": sorted(getattr(factory, "needs", ())), "parameters": parameters}


def _text(value: object) -> str:
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _kind(annotation: Any) -> str:
    """The type of a parameter, in words."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _kind(parts[0])
    if origin is Literal:
        return " | ".join(map(str, parts))
    # commas separate parameters, so values use semicolons
    if origin is tuple:
        return "numbers with semicolons between"
    if parts:
        return " | ".join(map(_kind, parts))
    return _KINDS.get(annotation, str(annotation))


_KINDS = {int: "whole number", float: "number", bool: "true | false", str: "text", type(None): "none"}
