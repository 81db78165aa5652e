"""The language of formulas: values against NumPy, the same in torch, limits, and the position of every error."""

from __future__ import annotations

import re
import sys
import time
import tracemalloc

import numpy as np
import pytest
import torch

from cic.core.errors import UserError
from cic.core.expressions import ARGUMENTS, ExpressionError, parse

SPEED, HEIGHT = np.linspace(-3, 3, 41), np.linspace(0, 1.6, 41)
VALUES = {"speed": SPEED, "height": HEIGHT, "obs[3]": SPEED * HEIGHT}


def tolerance(x: np.ndarray, low: float, high: float, margin: float) -> np.ndarray:
    outside = np.where(x < low, low - x, np.where(x > high, x - high, 0))
    return np.exp(-0.5 * (outside / margin * np.sqrt(-2 * np.log(0.1))) ** 2)


CASES = {
    "speed": SPEED,
    "height - 2 * speed": HEIGHT - 2 * SPEED,
    "-speed / 4 + +1.5e1": -SPEED / 4 + 15,
    "(speed - 1) ** 2": (SPEED - 1) ** 2,
    "height ** -0.5 * (height > 0)": np.where(HEIGHT > 0, np.maximum(HEIGHT, 1e-30) ** -0.5, np.nan),
    "obs[3] * 2": 2 * SPEED * HEIGHT,
    "speed > 1": (SPEED > 1).astype(float),
    "0 < speed <= 2": ((SPEED > 0) & (SPEED <= 2)).astype(float),
    "(speed != 0) * (height >= 0.8) + (1 == 1)": (SPEED != 0) * (HEIGHT >= 0.8) + 1.0,
    "min(speed, height, 0.5)": np.minimum(np.minimum(SPEED, HEIGHT), 0.5),
    "max(speed, -height)": np.maximum(SPEED, -HEIGHT),
    "abs(speed) + sqrt(height) + exp(-height)": np.abs(SPEED) + np.sqrt(HEIGHT) + np.exp(-HEIGHT),
    "sin(speed) * cos(speed)": np.sin(SPEED) * np.cos(SPEED),
    "clip(speed, -1, height)": np.clip(SPEED, -1, HEIGHT),
    "tolerance(speed, 1, 2, 0.5)": tolerance(SPEED, 1, 2, 0.5),
    "tolerance(height, 1, 2)": ((HEIGHT >= 1) & (HEIGHT <= 2)).astype(float),
}


@pytest.mark.parametrize("text", CASES)
def test_values_are_those_of_numpy_and_torch(text: str) -> None:
    formula = parse(text, VALUES)
    with np.errstate(all="ignore"):
        found = formula(VALUES, np, np.float64)
    tensors = {name: torch.from_numpy(value) for name, value in VALUES.items()}
    in_torch = formula(tensors, torch, tensors["speed"].new_tensor)
    np.testing.assert_allclose(found, CASES[text], rtol=1e-12)
    np.testing.assert_allclose(in_torch.numpy(), CASES[text], rtol=1e-12)
    assert formula.names == {name for name in VALUES if name in text}


def test_tolerance_is_that_of_dm_control() -> None:
    rewards = pytest.importorskip("dm_control.utils.rewards")
    wanted = rewards.tolerance(SPEED, bounds=(1, 2), margin=0.7)
    np.testing.assert_allclose(parse("tolerance(speed, 1, 2, 0.7)")(VALUES, np, np.float64), wanted, rtol=1e-9)


ERRORS: dict[str, tuple[int | None, str]] = {  # formula → position, counted from 1, and part of the message
    "sped": (1, "did you mean speed"),
    "height * sped": (10, "did you mean speed"),
    "height * widht": (10, "did you mean height"),
    "ä + 2 * qqq": (1, "unknown name"),
    "1 + zzzzz": (5, "the names are height, speed"),
    "obs[4]": (1, r'unknown name "obs\[4\]"'),
    "obs[-1]": (1, "not part of the language"),
    "obs[speed]": (1, "not part of the language"),
    "speed +": (None, "not a formula"),
    "   speed speed": (None, "not a formula"),
    "(speed": (None, "not a formula"),
    "speed.real": (1, "no attributes"),
    "2 * speed.__class__": (5, "no attributes"),
    "__import__('os')": (1, "unknown function"),
    "sqr(speed)": (1, "did you mean sqrt"),
    "max(speed)": (1, r"write max\(a, b\)"),
    "clip(speed, 1)": (1, r"write clip\(value, low, high\)"),
    "abs(x=speed)": (1, "other arguments"),
    "abs(*speed)": (5, "not part of the language"),
    "speed and height": (1, "multiply conditions"),
    "speed if height else 1": (1, "multiply by a condition"),
    "speed ^ 2": (1, r"write powers as `\*\*`"),
    "'speed'": (1, "only numbers"),
    "True": (1, "only numbers"),
    "1j": (1, "only numbers"),
    "1e400": (1, "only numbers up to 1e30"),
    "speed ** height": (10, "exponent must be a number"),
    "9 ** 9 ** 9": (6, "exponent must be a number"),
    "speed ** 99": (10, "at most 16"),
    "max": (1, "max is a function"),
    "lambda: 1": (1, "not part of the language"),
    "[speed]": (1, "not part of the language"),
    "speed, height": (1, "a formula is one number"),
    "speed := 2": (None, "not a formula"),
    "speed @ height": (1, "not part of the language"),
    "not speed": (1, "not part of the language"),
    "speed is height": (1, "not part of the language"),
    "f'{speed}'": (1, "not part of the language"),
}


@pytest.mark.parametrize("text", ERRORS)
def test_an_error_names_the_position(text: str) -> None:
    position, message = ERRORS[text]
    with pytest.raises(ExpressionError, match=message) as error:
        parse(text, VALUES)
    where = r"\d+" if position is None else position  # the parser's, which depends on the version of Python
    assert re.match(rf'"{re.escape(text)}", position {where}: ', str(error.value))


def test_limits() -> None:
    with pytest.raises(ExpressionError, match="at most 500 characters, not 1,001"):
        parse("+".join(["1"] * 501))
    with pytest.raises(ExpressionError, match="more than 30 levels"):
        parse("-" * 40 + "1")
    with pytest.raises(UserError, match="is empty"):
        parse("  ")
    assert parse("+".join(["1"] * 30)).names == frozenset()


# ---- hostile and random formulas -------------------------------------------------------------------------------

TOKENS = re.findall(
    r"\S+",
    "speed height obs[3] obs[99] 1 0 -1 1e9 9999999 0.5 + - * / ** // % @ < <= == != > ( ) ( ) , min( max( abs( exp( "
    "sqrt( clip( tolerance( sin( cos( lambda : [ ] { } . __class__ __import__ import exec( eval( open( 'os' \"x\" "
    "f'{1}' b'1' await yield if else for in not and or is True None ... := = ; # \\ \x00 é ² 0x10 0b1 1_000 1j _ $ ? ! "
    "~ & | ^",
)
HOSTILE = [
    "__import__('os').system('touch broken')",
    "(lambda: open('broken', 'w'))()",
    "().__class__.__bases__[0].__subclasses__()",
    "[x for x in ().__class__.__mro__]",
    'exec(\'open("broken", "w")\')',
    "9**9**9**9",
    "(" * 240 + "1" + ")" * 240,
    "-" * 499 + "1",
    "1" * 499,
    "f'{open(1)}'",
    "speed" * 99,
    "max(" * 100 + "1",
    "'a' * 10 ** 9",
    "1 if 1 else 2",
    "\ud800",
    "obs[999999999999999999999999]",
    "exp(exp(exp(exp(exp(speed)))))",
]


def random_texts(count: int, seed: int) -> list[str]:
    """Random tokens, and random formulas of which some have too many levels or a wrong number of arguments."""
    rng = np.random.default_rng(seed)
    joined = [str(rng.choice(["", " "])).join(rng.choice(TOKENS, size=rng.integers(1, 30))) for _ in range(count // 2)]
    return joined + [random_formula(rng, int(rng.integers(1, 7))) for _ in range(count - len(joined))]


def random_formula(rng: np.random.Generator, depth: int) -> str:
    if depth == 0:
        return str(rng.choice(["speed", "height", "obs[3]", "1", "0", "1e-9", "1e30"]))
    kind = str(rng.choice(["+", "-", "*", "/", "<", "**", "function"]))
    if kind == "function":
        name = str(rng.choice(list(ARGUMENTS)))
        arguments = [random_formula(rng, depth - 1) for _ in range(rng.integers(1, 4))]
        return f"{name}({', '.join(arguments)})"
    left = random_formula(rng, depth - 1)
    return (
        f"({left}) ** {rng.integers(-16, 17)}" if kind == "**" else f"({left} {kind} {random_formula(rng, depth - 1)})"
    )


WATCHED = ("exec", "import", "open", "os.", "subprocess.", "socket.", "ctypes.", "shutil.")
seen: list[str] = []
watching = False


def watch(event: str, arguments: object) -> None:
    """An audit hook, which cannot be removed: it records only while `watching`."""
    if watching and event.startswith(WATCHED):
        seen.append(f"{event} {arguments}")


def attack(texts: list[str]) -> int:
    """Parse and evaluate texts; return how many are formulas. Each takes little time and memory and runs no code."""
    global watching
    sys.addaudithook(watch)
    accepted, slowest = 0, 0.0
    tracemalloc.start()
    try:
        for text in texts:
            start, watching = time.perf_counter(), True
            accepted += is_formula(text)
            watching, slowest = False, max(slowest, time.perf_counter() - start)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        watching = False
        tracemalloc.stop()
    assert not seen
    assert slowest < 1
    assert peak < 100e6
    return accepted


def is_formula(text: str) -> bool:
    """Whether a text is accepted. Every other exception than an `ExpressionError` is a failure."""
    try:
        formula = parse(text, VALUES)
    except ExpressionError as error:
        found: ExpressionError | None = error
    else:
        found = None
        with np.errstate(all="ignore"):
            value = np.asarray(formula(VALUES, np, np.float64))
        assert value.shape in ((), SPEED.shape)
        assert value.dtype == np.float64
    if found is not None:
        assert f", position {found.position + 1}: " in str(found)
        assert 0 <= found.position <= len(text)
    return found is None


def test_hostile_formulas_do_nothing() -> None:
    accepted = attack([*HOSTILE, *random_texts(300, seed=0)])
    assert accepted > 30


@pytest.mark.slow
def test_ten_thousand_hostile_formulas_do_nothing() -> None:
    mutated = [text[:cut] + other for text in [*CASES, *ERRORS] for cut in (3, 7) for other in HOSTILE]
    texts = [*mutated, *random_texts(10_000 - len(mutated), seed=1)]
    assert len(texts) == 10_000
    assert attack(texts) > 1_000
