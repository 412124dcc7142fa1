"""The extra `live`, without which commands that train for real are refused."""

from __future__ import annotations

from importlib.util import find_spec

from skedge.core.errors import InputError

_PACKAGES = ("torch", "ray", "sqlalchemy", "fastapi", "uvicorn")


def check_live() -> None:
    """Check that the extra is installed, without importing it: PyTorch and Ray take seconds.

    Raises
    ------
    InputError
        If one of its packages is missing.
    """
    # find_spec looks a module up without importing it
    missing = next((name for name in _PACKAGES if find_spec(name) is None), None)
    if missing is not None:
        raise InputError(f"this needs the extra `live`: pip install 'skedge[live]' (there is no module {missing})")
