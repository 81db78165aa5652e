"""Words to values: numbers in every usual spelling, mistakes in one sentence."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from helpers import steady
from hypothesis import given, settings
from hypothesis import strategies as st

from cic.commandline.flags import REQUIRED, attribute_docs, flags_of, number, parse, parse_into, peek
from cic.core.errors import UserError


@dataclass(frozen=True)
class Part:
    reps: int = 7
    """How often."""


@dataclass(frozen=True)
class Args:
    run: Path
    """A folder."""
    part: Part
    steps: int = 10
    """Environment steps."""
    lr: float = 1e-3
    """Rate."""
    skill: tuple[float, ...] | None = None
    """Numbers."""
    names: tuple[str, ...] = ()
    """Words."""
    mode: Literal["auto", "on"] = "auto"
    """A choice."""
    quiet: bool = False
    """Be quiet."""
    video: bool = True
    """A film
    on two lines."""


def read(*words: str) -> Args:
    return parse_into(Args, ["RUN", *words], "test", positional=["run"])


@settings(steady, max_examples=30)
@given(st.integers(-(10**12), 10**12))
def test_whole_numbers_in_every_spelling(value: int) -> None:
    spellings = [str(value), f"{value:_}", f"{value:,}", f"{value}.0"]
    if value % 1000 == 0:
        spellings += [f"{value // 1000}k", f"{value // 1000}e3"]
    if value % 1_000_000 == 0:
        spellings += [f"{value // 1_000_000}M"]
    for text in spellings:
        assert number(text) == value
        assert read("--steps", text).steps == value
        assert isinstance(read(f"--steps={text}").steps, int)


def test_the_spellings_of_the_documentation() -> None:
    assert [read("--steps", text).steps for text in ("1e5", "100k", "100_000", "0.1M")] == [100_000] * 4


def test_a_list_takes_spaces() -> None:
    assert read("--skill", "0", "1,000").skill == (0, 1000)
    with pytest.raises(UserError, match="--skill must be numbers with spaces between them, not 0,1"):
        read("--skill", "0,1")


@steady
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_come_through(value: float) -> None:
    assert read("--lr", repr(value)).lr == value


@pytest.mark.parametrize("text", ["many", "1e", "k", "", "1.5", "nan", "inf", "1e400", "--", "0,1", "1,0000", ",5"])
def test_what_is_no_whole_number(text: str) -> None:
    with pytest.raises(UserError, match="--steps"):
        read("--steps", text)


def test_defaults_lists_switches_choices_and_parts() -> None:
    assert read() == Args(Path("RUN"), Part())
    assert read("--skill", "0.5", "-1", "--names", "a", "b", "--reps", "9").skill == (0.5, -1.0)
    assert read("--names", "a", "b").names == ("a", "b")
    assert read("--reps", "9").part == Part(9)
    assert read("--skill", "none").skill is None
    assert (read("--quiet").quiet, read("--no-quiet").quiet, read("--no-video").video) == (True, False, False)
    assert read("--mode", "on").mode == "on"
    assert parse_into(Args, ["--skill", "0.5", "RUN"], "test", ["run"]).run == Path("RUN"), "a word ends the numbers"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--stepz", "3"], "unknown flag --stepz; did you mean --steps?"),
        (["--frobnicate"], "unknown flag --frobnicate; see `cic test --help-all`"),
        (["--no-steps"], "unknown flag --no-steps; did you mean --steps?"),
        (["--steps"], "--steps needs a value: INT"),
        (["--steps", "--quiet"], "--steps needs a value: INT"),
        (["--mode", "off"], 'unknown value of --mode "off"; choose one of: auto, on'),
        (["--mode", "ato"], 'unknown value of --mode "ato"; did you mean "auto"?'),
        (["--quiet=yes"], "--quiet takes no value"),
        (["another"], "does not know what another means"),
    ],
)
def test_mistakes_name_the_way_out(words: list[str], sentence: str) -> None:
    with pytest.raises(UserError) as error:
        read(*words)
    assert sentence in str(error.value)


def test_what_is_missing_is_asked_for_with_its_meaning() -> None:
    with pytest.raises(UserError, match="`cic test` needs RUN: A folder"):
        parse_into(Args, [], "test", positional=["run"])


def test_underscores_are_dashes_and_the_last_value_counts() -> None:
    @dataclass(frozen=True)
    class Copies:
        num_envs: int = 1

    given_twice = parse(flags_without_docs(Copies), ["--num_envs", "3", "--num-envs", "4"], "test")
    assert given_twice == {"num_envs": 4}


def flags_without_docs(cls: type) -> list[Any]:
    return [flag for flag in flags_of(cls) if flag.default != REQUIRED]


def test_docstrings_of_fields_are_the_help_on_one_line() -> None:
    texts = attribute_docs(Args)
    assert texts["video"] == "A film on two lines."
    assert set(texts) == {field.name for field in dataclasses.fields(Args)} - {"part"}


def test_a_flag_can_be_looked_at_before_there_are_flags() -> None:
    assert peek(["--scale", "smoke"], "--scale") == "smoke"
    assert peek(["--scale=paper"], "--scale") == "paper"
    assert peek(["--scale"], "--scale") is None
    assert peek(["smoke"], "--scale") is None
