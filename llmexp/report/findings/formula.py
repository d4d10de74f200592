"""Arithmetic over the figures of published tables, such as `[VI forward MLP time_ms] / [V forward overall_ms]`.

A figure is named by its table, the words of its line, and its column.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping

from llmexp.errors import ConfigError
from llmexp.report.findings.rows import ClaimRow

_NAME = re.compile(r"\[([^\]]+)\]")
_OPERATORS: Mapping[type, Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_FUNCTIONS: Mapping[str, Callable[..., float]] = {"max": max, "min": min, "abs": abs}


def names_in(formula: str) -> list[str]:
    """Return the names of the figures, each once, in the formula's order."""
    return list(dict.fromkeys(_NAME.findall(formula)))


def figures_of(rows: tuple[ClaimRow, ...]) -> dict[str, tuple[ClaimRow, str]]:
    """Return for the name of every figure its row and column."""
    return {f"{row.table} {row.label} {column}": (row, column) for row in rows for column in row.values}


def calculate(formula: str, values: Mapping[str, float]) -> float:
    """Return the formula's value. Raises ConfigError where it is no arithmetic or names no figure of `values`."""
    names = names_in(formula)
    if missing := [name for name in names if name not in values]:
        raise ConfigError(f"there is no figure [{missing[0]}]")
    plain = _NAME.sub(lambda found: f"v{names.index(found[1])}", formula)
    try:
        tree = ast.parse(plain, mode="eval").body
    except SyntaxError:
        raise ConfigError(f"formula '{formula}' is not arithmetic") from None
    return _value(tree, {f"v{place}": values[name] for place, name in enumerate(names)})


def _value(node: ast.expr, values: Mapping[str, float]) -> float:
    match node:
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.Name(id=name) if name in values:
            return values[name]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(left, values), _value(right, values))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, values)
        case ast.Call(func=ast.Name(id=name), args=given) if name in _FUNCTIONS:
            return _FUNCTIONS[name](*(_value(each, values) for each in given))
    raise ConfigError("a formula has figures in brackets, numbers, + - * /, max, min and abs")
