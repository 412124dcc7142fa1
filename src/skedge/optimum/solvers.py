"""Interface to HiGHS and CP-SAT, if they are installed: programs, solutions and proved bounds."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Generic, TypeVar

import numpy as np

from skedge.core.errors import InputError
from skedge.core.model.cluster import Floats

T = TypeVar("T")
U = TypeVar("U")
INSTALL = "exact optima need the extra `optimum`: pip install 'skedge[optimum]'"


@dataclass(frozen=True)
class SolverResult(Generic[T]):
    """A solution or None; the proved bound in the model's own objective, or None; the solver's status message."""

    solution: T | None
    bound: float | None
    message: str

    def map(self, read: Callable[[T], U], convert: Callable[[float], float] = float) -> SolverResult[U]:
        """The result in the terms of another model: its solution read, its bound converted."""
        solution = None if self.solution is None else read(self.solution)
        return SolverResult(solution, None if self.bound is None else convert(self.bound), self.message)


def cp_tools() -> Any:
    """The module of CP-SAT.

    Raises
    ------
    InputError
        If OR-Tools is not installed.
    """
    return _extra("ortools.sat.python.cp_model")


def _extra(module: str) -> Any:
    """A module of the extra `optimum`.

    Raises
    ------
    InputError
        If it is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise InputError(f"{INSTALL} ({error})") from error


def cp_solve(model: Any, seconds: float, read: Callable[[Any], T]) -> SolverResult[T]:
    """Let CP-SAT minimise or maximise `model`; `read` makes the solution, given a function from variable to value."""
    cp = cp_tools()
    solver = cp.CpSolver()
    solver.parameters.max_time_in_seconds = max(seconds, 0.01)
    solver.parameters.num_workers = 2
    solver.parameters.random_seed = 0
    status = solver.solve(model)
    message = solver.status_name(status).lower()
    if status not in (cp.OPTIMAL, cp.FEASIBLE):
        bound = solver.best_objective_bound if status == cp.UNKNOWN else None
        return SolverResult(None, bound if bound is not None and math.isfinite(bound) else None, message)
    return SolverResult(read(solver.value), float(solver.best_objective_bound), message)


@dataclass(frozen=True)
class Rows:
    """Rows of a linear program: low <= A x <= high.

    The entries of row i are those of `column` and `value` from ``start[i]`` to before ``start[i + 1]``.
    """

    start: list[int] = field(default_factory=lambda: [0])
    column: list[int] = field(default_factory=list)
    value: list[float] = field(default_factory=list)
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)

    def add(self, terms: list[tuple[int, float]], low: float, high: float) -> None:
        """Add one row."""
        for column, value in terms:
            self.column.append(column)
            self.value.append(value)
        self.start.append(len(self.column))
        self.low.append(low)
        self.high.append(high)


@dataclass(frozen=True)
class IntegerProgram:
    """Minimise cost x over rows, 0 <= x <= upper, all x integer.

    Attributes
    ----------
    cost, upper
        Cost and upper bound of every variable, shape ``(variables,)``.
    rows
        The constraints.
    """

    cost: Floats
    upper: Floats
    rows: Rows


class ProgramDraft:
    """An integer program under construction: variables cost nothing until their cost is set.

    Attributes
    ----------
    cost, upper
        Shape ``(variables,)``.
    rows
        The constraints.
    loads
        Terms of the capacity rows, by slot, server and resource.
    """

    def __init__(self, size: int, upper: float) -> None:
        self.cost, self.upper, self.rows = np.zeros(size), np.full(size, upper), Rows()
        self.loads = defaultdict[tuple[int, int, int], list[tuple[int, float]]](list)

    def limit_loads(self, capacity: Floats) -> None:
        """Add the capacity rows; `capacity` has shape ``(servers, resources)``."""
        for (_, server, resource), terms in self.loads.items():
            self.rows.add(terms, -np.inf, float(capacity[server, resource]))


_FEASIBILITY_TOLERANCE = 1e-7
"""Feasibility tolerance of HiGHS. At 1e-9 HiGHS 1.14 once called a value optimal that CP-SAT beat by 0.2 %."""


def milp(
    cost: Floats, upper: Floats, integer: np.ndarray, rows: Rows, start: Floats, seconds: float, *, gap: float
) -> SolverResult[Floats]:  # fmt: skip
    """Let HiGHS minimise cost x over rows, 0 <= x <= upper, x integer where `integer` is true.

    Parameters
    ----------
    cost, upper, integer
        Shape ``(variables,)``.
    rows
        The constraints.
    start
        A point that HiGHS starts from; ignored if it is infeasible.
    seconds
        Limit of wall time [s].
    gap
        Difference of value and bound up to which HiGHS calls the value optimal.
    """
    highspy = _extra("highspy")
    h = highspy.Highs()
    for option, value in (
        ("output_flag", False), ("time_limit", max(seconds, 0.01)), ("mip_rel_gap", 0.0), ("mip_abs_gap", gap),
        ("random_seed", 0), ("threads", 2), ("mip_feasibility_tolerance", _FEASIBILITY_TOLERANCE),
        ("primal_feasibility_tolerance", _FEASIBILITY_TOLERANCE),
    ):  # fmt: skip
        h.setOptionValue(option, value)
    h.passModel(_highs_lp(highspy, cost, upper, integer, rows))
    start_solution = highspy.HighsSolution()
    start_solution.col_value = start.tolist()
    h.setSolution(start_solution)
    h.run()
    info, status = h.getInfo(), h.modelStatusToString(h.getModelStatus()).lower()
    bound = float(info.mip_dual_bound)
    is_feasible = info.primal_solution_status == 2  # feasible
    values = np.array(h.getSolution().col_value) if is_feasible else None
    return SolverResult(values, bound if math.isfinite(bound) else None, status)


def cp_milp(program: IntegerProgram, start: Floats, seconds: float) -> SolverResult[Floats]:
    """Let CP-SAT minimise a program.

    Coefficients become integers: exact to a millionth of the largest of each row, the cost to 14 digits of its largest
    value. They are rounded so that no solution of the program is lost and the bound remains valid. The solution may
    violate a row by as much. `start` is a hint; `seconds` limits the wall time.
    """
    cost, upper, rows = program.cost, program.upper, program.rows
    m = cp_tools().CpModel()
    x = [m.new_int_var(0, int(u), "") for u in upper]
    columns, values = np.array(rows.column, np.int64), np.array(rows.value, float)
    for i, (low, high) in enumerate(zip(rows.low, rows.high, strict=True)):
        entries = slice(rows.start[i], rows.start[i + 1])
        v, scope = values[entries], [x[k] for k in columns[entries]]
        # integer rows stay as they are; others are scaled so that the largest coefficient has six digits
        scale = 1.0 if (v == np.rint(v)).all() else _ROW_SCALE / float(np.abs(v).max(initial=1e-300))
        # x >= 0: coefficients of a <= row round down and its limit up, so that the row only gets weaker
        if high < np.inf:
            m.add(_weighted(scope, np.floor(v * scale + _ROW_ROUNDING)) <= math.ceil(high * scale - _ROW_ROUNDING))
        if low > -np.inf:
            m.add(_weighted(scope, np.ceil(v * scale - _ROW_ROUNDING)) >= math.floor(low * scale + _ROW_ROUNDING))
    scale = _COST_SCALE / max(float(upper @ np.abs(cost)), 1e-300)
    m.minimize(_weighted(x, np.rint(cost * scale)))
    for variable, hint in zip(x, np.rint(start), strict=True):
        m.add_hint(variable, int(hint))
    result = cp_solve(m, seconds, lambda read: np.array([read(v) for v in x], float))
    # each coefficient of the cost was rounded by at most a half
    rounding_loss = float(upper @ (np.abs(cost) > 0)) * 0.5 / scale
    return result.map(np.asarray, lambda scaled: scaled / scale - rounding_loss)


def _weighted(variables: list[Any], weights: Floats) -> Any:
    return sum(int(w) * v for v, w in zip(variables, weights, strict=True) if w)


_ROW_SCALE, _ROW_ROUNDING, _COST_SCALE = 1e6, 1e-6, 1e14


def _highs_lp(highspy: Any, cost: Floats, upper: Floats, integer: np.ndarray, rows: Rows) -> Any:
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(cost), len(rows.low)
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = cost, np.zeros(len(cost)), upper
    lp.row_lower_, lp.row_upper_ = np.array(rows.low, float), np.array(rows.high, float)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_, lp.a_matrix_.index_ = np.array(rows.start), np.array(rows.column)
    lp.a_matrix_.value_ = np.array(rows.value, float)
    kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
    lp.integrality_ = [kinds[int(w)] for w in integer]
    return lp


IntegerSolver = Callable[[IntegerProgram, Floats, float], SolverResult[Floats]]


def integer_solvers(gap: float) -> dict[str, IntegerSolver]:
    """Solvers of such programs: called with a start, a time limit [s] and `gap` as in :func:`milp`."""

    def highs(program: IntegerProgram, start: Floats, seconds: float) -> SolverResult[Floats]:
        integer = np.ones(len(program.cost), bool)
        return milp(program.cost, program.upper, integer, program.rows, start, seconds, gap=gap)

    return {"HiGHS": highs, "CP-SAT": cp_milp}
