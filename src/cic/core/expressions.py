"""A small language for formulas that users type: numbers, names, arithmetic, comparisons and a few functions.

A text is parsed by Python's `ast` and accepted only if every node is in a whitelist, so a formula cannot call, import
or read anything. Formulas are evaluated on NumPy arrays or torch tensors. Comparisons give 1 or 0. An entry of a
vector is written `obs[3]`.
"""

from __future__ import annotations

import ast
import difflib
import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cic.core.errors import UserError

MAX_LENGTH, MAX_DEPTH, MAX_EXPONENT = 500, 30, 16
ARGUMENTS = {
    "min": (2, 8),
    "max": (2, 8),
    "abs": (1, 1),
    "exp": (1, 1),
    "sqrt": (1, 1),
    "sin": (1, 1),
    "cos": (1, 1),
    "clip": (3, 3),
    "tolerance": (3, 4),
}
"""The functions, with the smallest and the largest number of arguments."""
USAGE = {
    "clip": "clip(value, low, high)",
    "tolerance": "tolerance(value, low, high, margin)",
}
_AT_MARGIN = math.sqrt(-2 * math.log(0.1))  # dm_control: the value is 0.1 at a distance of one margin
_INSTEAD = {
    ast.BoolOp: "multiply conditions instead of `and`, and take their `max` instead of `or`",
    ast.IfExp: "multiply by a condition instead of `if`",
    ast.BitXor: "write powers as `**`",
    ast.Attribute: "names have no attributes",
    ast.Tuple: "a formula is one number",
}


class ExpressionError(UserError):
    """A formula that is not part of the language; the message names the position."""

    def __init__(self, text: str, position: int, problem: str) -> None:
        super().__init__(f'"{_shown(text)}", position {position + 1}: {problem}')
        self.position = position


@dataclass(frozen=True)
class Expression:
    """A formula that was checked. Call it with the values of its names."""

    text: str
    names: frozenset[str]
    """The names that it uses; an entry of a vector counts as the name `obs[3]`."""
    tree: ast.expr

    def __call__(self, values: Mapping[str, Any], xp: Any, constant: Callable[[float], Any]) -> Any:
        """Evaluate the formula.

        Args:
            values: An array or tensor for each name.
            xp: `numpy` or `torch`.
            constant: Makes an array or tensor from a number.
        """
        return _Evaluation(values, xp, constant).value(self.tree)


def parse(text: str, known: Iterable[str] | None = None) -> Expression:
    """Check a formula; raise an `ExpressionError` with the position of what is wrong.

    Args:
        text: The formula.
        known: The names that it may use; None accepts every name.
    """
    if not isinstance(text, str):
        raise UserError(f"a formula must be text, not {type(text).__name__}")
    if not text.strip():
        raise ExpressionError(text, 0, "the formula is empty: write for example `speed` or `height - 2 * speed`")
    if len(text) > MAX_LENGTH:
        raise ExpressionError(text, MAX_LENGTH, f"a formula has at most {MAX_LENGTH} characters, not {len(text):,}")
    line = "".join(" " if character.isspace() else character for character in text)
    start = len(line) - len(line.lstrip())
    tree = _tree(text, line[start:], start)
    checker = _Checker(text, line, start, None if known is None else frozenset(known))
    checker.check(tree, 0)
    return Expression(text, frozenset(checker.names), tree)


def _tree(text: str, line: str, start: int) -> ast.expr:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(line, mode="eval").body
    except SyntaxError as error:
        place = (error.offset or 1) - 1 if error.lineno in (None, 1) else 0
        raise ExpressionError(text, start + min(max(place, 0), len(line)), _plain(error)) from None
    except (ValueError, MemoryError, RecursionError):
        raise ExpressionError(text, start, "this is not a formula") from None


def _plain(error: SyntaxError) -> str:
    reason = str(error.msg or "").partition(". ")[0]
    return "this is not a formula" if not reason or reason == "invalid syntax" else f"this is not a formula ({reason})"


def _shown(text: str) -> str:
    """The text as one printable line of limited length."""
    line = "".join(character if character.isprintable() else "?" for character in text)
    return line if len(line) <= 80 else f"{line[:79]}…"


def entry_name(node: ast.expr) -> str | None:
    """`speed` or `obs[3]`; None for other nodes."""
    if isinstance(node, ast.Name):
        return node.id
    if (
        isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Name)
        and isinstance(node.slice, ast.Constant)
        and type(node.slice.value) is int
    ):
        return f"{node.value.id}[{node.slice.value}]"
    return None


class _Checker:
    """Refuses every node that is not in the whitelist, and collects the names."""

    def __init__(self, text: str, line: str, start: int, known: frozenset[str] | None) -> None:
        self.text, self.start, self.known = text, start, known
        self.line = line[start:].encode()
        self.names: set[str] = set()

    def error(self, node: ast.AST, problem: str) -> ExpressionError:
        offset = len(self.line[: getattr(node, "col_offset", 0)].decode(errors="ignore"))
        return ExpressionError(self.text, self.start + offset, problem)

    def check(self, node: ast.expr, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise self.error(node, f"more than {MAX_DEPTH} levels of nesting: simplify the formula")
        for part in self._parts(node):
            self.check(part, depth + 1)

    def _parts(self, node: ast.expr) -> list[ast.expr]:
        """The parts of a node that have to be checked."""
        if isinstance(node, ast.Constant):
            return self._number(node)
        if (name := entry_name(node)) is not None:
            return self._name(node, name)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
            return [node.operand]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub | ast.Mult | ast.Div):
            return [node.left, node.right]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
            return self._power(node)
        if isinstance(node, ast.Compare) and all(isinstance(one, _COMPARISONS) for one in node.ops):
            return [node.left, *node.comparators]
        if isinstance(node, ast.Call):
            return self._call(node)
        kind = type(node.op) if isinstance(node, ast.BinOp) else type(node)
        instead = _INSTEAD.get(kind, "use numbers, names, + - * / **, comparisons and " + " ".join(ARGUMENTS))
        raise self.error(node, f"this is not part of the language: {instead}")

    def _number(self, node: ast.Constant) -> list[ast.expr]:
        if not _is_number(node.value, 1e30):
            raise self.error(node, "only numbers up to 1e30 can be used here")
        return []

    def _name(self, node: ast.expr, name: str) -> list[ast.expr]:
        if name in ARGUMENTS:
            raise self.error(node, f"{name} is a function: write {USAGE.get(name, f'{name}(…)')}")
        if self.known is not None and name not in self.known:
            raise self.error(node, _unknown_name(name, self.known))
        self.names.add(name)
        return []

    def _power(self, node: ast.BinOp) -> list[ast.expr]:
        exponent = node.right
        if isinstance(exponent, ast.UnaryOp) and isinstance(exponent.op, ast.USub):
            exponent = exponent.operand
        if not isinstance(exponent, ast.Constant) or not _is_number(exponent.value, MAX_EXPONENT):
            raise self.error(node.right, f"an exponent must be a number of at most {MAX_EXPONENT}")
        return [node.left]

    def _call(self, node: ast.Call) -> list[ast.expr]:
        name = node.func.id if isinstance(node.func, ast.Name) else None
        if name not in ARGUMENTS:
            hint = "" if name is None else _suggestion(name, ARGUMENTS)
            raise self.error(node, f"unknown function{hint}; the functions are {', '.join(ARGUMENTS)}")
        least, most = ARGUMENTS[name]
        if node.keywords or not least <= len(node.args) <= most:
            usage = USAGE.get(name, f"{name}({', '.join('ab'[:least])})")
            raise self.error(node, f"{name} has other arguments: write {usage}")
        return list(node.args)


def _is_number(value: Any, most: float) -> bool:
    return type(value) in (int, float) and abs(value) <= most


_COMPARISONS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)


def _suggestion(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.5)
    return f' "{name}"' + (f"; did you mean {' or '.join(near)}?" if near else "")


def _unknown_name(name: str, known: frozenset[str]) -> str:
    hint = _suggestion(name, sorted(known))
    listed = ", ".join(sorted(one for one in known if "[" not in one)) or "obs[0], …"
    return f"unknown name{hint}" if "?" in hint else f"unknown name{hint}; the names are {listed}"


class _Evaluation:
    def __init__(self, values: Mapping[str, Any], xp: Any, constant: Callable[[float], Any]) -> None:
        self.values, self.xp, self.constant = values, xp, constant

    def value(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant):
            return self.constant(float(node.value))  # type: ignore[arg-type]
        if (name := entry_name(node)) is not None:
            return self.values[name]
        if isinstance(node, ast.UnaryOp):
            value = self.value(node.operand)
            return -value if isinstance(node.op, ast.USub) else value
        if isinstance(node, ast.BinOp):
            return self._arithmetic(node.op, self.value(node.left), node.right)
        if isinstance(node, ast.Compare):
            return self._comparison(node)
        assert isinstance(node, ast.Call)
        assert isinstance(node.func, ast.Name)
        return self._function(node.func.id, [self.value(part) for part in node.args])

    def _arithmetic(self, op: ast.operator, left: Any, right: ast.expr) -> Any:
        if isinstance(op, ast.Pow):
            return left ** float(ast.literal_eval(right))
        other = self.value(right)
        if isinstance(op, ast.Add):
            return left + other
        if isinstance(op, ast.Sub):
            return left - other
        return left * other if isinstance(op, ast.Mult) else left / other

    def _comparison(self, node: ast.Compare) -> Any:
        values = [self.value(part) for part in (node.left, *node.comparators)]
        holds = self.constant(1.0)
        for op, left, right in zip(node.ops, values[:-1], values[1:], strict=True):
            holds = holds * self._where(_compare(op, left, right))
        return holds

    def _where(self, condition: Any) -> Any:
        return self.xp.where(condition, self.constant(1.0), self.constant(0.0))

    def _function(self, name: str, values: list[Any]) -> Any:
        if name in ("min", "max"):
            result = values[0]
            for value in values[1:]:
                result = (self.xp.minimum if name == "min" else self.xp.maximum)(result, value)
            return result
        if name == "clip":
            return self.xp.minimum(self.xp.maximum(values[0], values[1]), values[2])
        if name == "tolerance":
            return self._tolerance(*values)
        return getattr(self.xp, name)(values[0])

    def _tolerance(self, value: Any, low: Any, high: Any, margin: Any = None) -> Any:
        """dm_control's `tolerance`: 1 from low to high, outside a Gaussian that is 0.1 at a distance of `margin`."""
        zero = self.constant(0.0)
        outside = self.xp.maximum(self.xp.maximum(low - value, value - high), zero)
        if margin is None:
            return self._where(outside <= zero)
        width = self.xp.maximum(margin, self.constant(1e-9))
        return self.xp.exp(-0.5 * (outside / width * _AT_MARGIN) ** 2)


def _compare(op: ast.cmpop, left: Any, right: Any) -> Any:
    if isinstance(op, ast.Lt):
        return left < right
    if isinstance(op, ast.LtE):
        return left <= right
    if isinstance(op, ast.Gt):
        return left > right
    if isinstance(op, ast.GtE):
        return left >= right
    return left == right if isinstance(op, ast.Eq) else left != right
