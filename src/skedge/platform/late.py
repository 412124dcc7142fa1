"""Compiled functions are optimised and translated to machine code only where Python calls them.

Numba does both for each function by itself, and again for each function that calls it, after linking. Most of our
compiled functions are called by others alone, so their own machine code is never used: leaving it out saves a sixth of
the time of compiling (ADR 28). Arguments that a function does not read are left out before it is optimised: each array
of a named tuple is seven, which every call would pass on. Results stay the same, bit by bit.

The names used here are numba's own and not documented, so this is done only with the versions of numba that it was
tried with; with others compiling takes longer, and nothing else changes.
"""

# ruff: noqa: SLF001 - they are private

from __future__ import annotations

from importlib import import_module
from typing import Any

import numba
from llvmlite import binding
from numba.core import codegen, environment
from numba.core.registry import cpu_target
from numba.np import linalg

from .resolution import remember_resolutions

_Library: Any = codegen.JITCodeLibrary
_llvm: Any = binding
_Linkage: Any = binding.Linkage
_environment_of: Any = environment.lookup_environment

_TESTED_VERSIONS = ("0.68.",)

_LINKED, _ENVIRONMENT = "linked", "_ZN08NumbaEnv"
"""Form in numba's cache of code without machine code; prefix of the variables that refer to Python's globals."""


def compile_lazily() -> None:
    """Let numba, if it is of a version that this was tried with, translate only what Python calls, from now on."""
    if not numba.__version__.startswith(_TESTED_VERSIONS):
        return
    _load_without_scipy()
    remember_resolutions()
    generator: Any = cpu_target.target_context.codegen()
    generator._library_class = LazyLibrary


def _load_without_scipy() -> None:
    """Load numba's array functions, which import SciPy's linear algebra (0.2 s) to see whether ``np.inner`` can use it.

    It works without, too; what needs it asks again when it is compiled, and no kernel here does.
    """
    linalg.ensure_blas, ensure_blas = _no_blas, linalg.ensure_blas
    try:
        import_module("numba.np.arraymath")
    finally:
        linalg.ensure_blas = ensure_blas


def _no_blas() -> None:
    raise ImportError("not looked for")


class NoCodegen:
    """In place of the code generator of a function that has no machine code: there is no variable to set."""

    def set_env(self, _name: str, _environment: object) -> None:
        """Do nothing."""


class LazyLibrary(_Library):  # type: ignore[misc]
    """A function with those that it calls; it has machine code once Python has asked for its address."""

    _native = False

    @property
    def codegen(self) -> Any:
        """The code generator."""
        return self._codegen if self._native else NoCodegen()

    def finalize(self) -> None:
        """Link what the function calls."""
        self._raise_if_finalized()
        for library in dict.fromkeys(self._linking_libraries):
            self._reload_init.update(library._reload_init)
            # preserved, as a function that is called is linked into each of its callers
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """Address of a function of the library; 0 if there is no such function."""
        self._ensure_finalized()
        if not self._native and self._defines(name):
            self._translate()
        address: int = super().get_pointer_to_function(name)
        return address

    def _defines(self, name: str) -> bool:
        return any(function.name == name for function in self.get_defined_functions())

    def _translate(self) -> None:
        # the second half of numba's own `finalize`, which follows linking there
        self._drop_unread_arguments()
        self._optimize_final_module()
        # other libraries have functions of the same names that take all arguments: they must not be mixed up
        self._set_linkage(_Linkage.linkonce_odr, _Linkage.internal)
        self._final_module.verify()
        self._finalize_final_module()
        self._native = True
        # the pointers to Python's globals, which `NoCodegen` has left out, now that there is code to use them
        for variable in self._final_module.global_variables:
            environment_address = _environment_of(variable.name) if variable.name.startswith(_ENVIRONMENT) else None
            if environment_address is not None:
                self._codegen.set_env(variable.name, environment_address)

    def _drop_unread_arguments(self) -> None:
        """Leave out the arguments that the linked functions do not read.

        Each array of a named tuple is seven arguments; a function of the case and the ledger has 400.
        """
        # LLVM changes only what nothing outside can call
        self._set_linkage(_Linkage.linkonce_odr, _Linkage.internal)
        passes = _llvm.create_new_module_pass_manager()
        passes.add_global_dead_code_eliminate_pass()
        passes.add_dead_arg_elimination_pass()
        passes.run(self._final_module, self._codegen._pass_builder())
        # an internal function with a single call is inlined at any size, which takes longer than it saves
        self._set_linkage(_Linkage.internal, _Linkage.linkonce_odr)

    def _set_linkage(self, before: int, after: int) -> None:
        for function in self.get_defined_functions():
            if function.linkage == before:
                function.linkage = after

    def serialize_using_object_code(self) -> tuple[str, str, Any]:
        """The library's form in numba's cache."""
        if self._native:
            state: tuple[str, str, Any] = super().serialize_using_object_code()
            return state
        return self.name, _LINKED, self._get_module_for_linking().as_bitcode()

    @classmethod
    def _unserialize(cls, generator: Any, state: tuple[str, str, Any]) -> LazyLibrary:
        name, form, data = state
        if form != _LINKED:
            native: LazyLibrary = super()._unserialize(generator, state)
            native._native = True
            return native
        linked: LazyLibrary = generator.create_library(name)
        linked._final_module = linked._shared_module = _llvm.parse_bitcode(data)
        linked._finalize_dynamic_globals()
        linked._finalized = True
        return linked
