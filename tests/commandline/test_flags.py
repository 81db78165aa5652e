"""Flags from dataclasses, and the values of flags."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from helpers import steady
from hypothesis import given, settings
from hypothesis import strategies as st

from cic.commandline.flags import POSITIONAL, build, flags_of
from cic.commandline.parser import CommandParser, with_import_flag
from cic.core.command_text import command_text
from cic.core.errors import UserError


@dataclass(frozen=True)
class Part:
    num_reps: int = 7
    """How often."""


@dataclass(frozen=True)
class Arguments:
    part: Part
    run: Path = field(metadata=POSITIONAL)
    """A folder."""
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
    on two lines, 100 % of the time."""


def make_parser() -> CommandParser:
    parser = CommandParser("test", "a test", [])
    parser.add_flags("settings", flags_of(Arguments))
    parser.add_general()
    return parser


def parse(*words: str) -> Arguments:
    return build(Arguments, make_parser().parse(words))


def parsed(*words: str) -> Arguments:
    return parse("RUN", *words)


@settings(steady, max_examples=30)
@given(st.integers(-(10**12), 10**12))
def test_whole_numbers_in_every_format(value: int) -> None:
    texts = [str(value), f"{value:_}", f"{value:,}", f"{value}.0"]
    if value % 1000 == 0:
        texts += [f"{value // 1000}k", f"{value // 1000}e3"]
    if value % 1_000_000 == 0:
        texts += [f"{value // 1_000_000}M"]
    for text in texts:
        assert parsed("--steps", text).steps == value
        assert isinstance(parsed(f"--steps={text}").steps, int)


def test_number_formats_of_the_documentation() -> None:
    assert [parsed("--steps", text).steps for text in ("1e5", "100k", "100_000", "0.1M")] == [100_000] * 4


@steady
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_are_exact(value: float) -> None:
    assert parsed("--lr", repr(value)).lr == value


@pytest.mark.parametrize("text", ["many", "1e", "k", "", "1.5", "nan", "inf", "1e400", "--", "0,1", "1,0000", ",5"])
def test_other_text_is_no_whole_number(text: str) -> None:
    with pytest.raises(UserError, match="--steps"):
        parsed("--steps", text)


def test_defaults_lists_booleans_choices_and_parts() -> None:
    assert parsed() == Arguments(Part(), Path("RUN"))
    assert parsed("--skill", "0.5", "-1e-3", "1,000").skill == (0.5, -1e-3, 1000.0)
    assert parsed("--skill", "none").skill is None
    assert parsed("--names", "a", "b").names == ("a", "b")
    assert parsed("--num-reps", "9").part == Part(9)
    assert (parsed("--quiet").quiet, parsed("--no-quiet").quiet, parsed("--no-video").video) == (True, False, False)
    assert parsed("--mode", "on").mode == "on"


@pytest.mark.parametrize("skill", ["0.5", "-1", "none"])
def test_a_word_ends_a_list_of_numbers(skill: str) -> None:
    assert parse("--skill", skill, "RUN", "--quiet").run == Path("RUN")


def test_underscores_are_dashes_and_the_last_value_counts() -> None:
    assert parsed("--num_reps", "3", "--num-reps", "4", "--num_reps=5").part == Part(5)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--stepz", "3"], "unknown flag --stepz; did you mean --steps?"),
        (["--step", "3"], "unknown flag --step; did you mean --steps?"),
        (["--frobnicate"], "unknown flag --frobnicate; see `cic test --help-all`"),
        (["--no-steps"], "unknown flag --no-steps; did you mean --steps?"),
        (["--steps"], "--steps: expected one argument"),
        (["--steps", "--quiet"], "--steps: expected one argument"),
        (["--steps", "1.5"], "--steps: expected a whole number, not 1.5"),
        (["--lr", "high"], "--lr: expected a number, not high"),
        (["--skill", "0,1"], "--skill: expected numbers with spaces between them, not 0,1"),
        (["--mode", "off"], '--mode: unknown value "off"; choose one of: auto, on'),
        (["--mode", "ato"], '--mode: unknown value "ato"; did you mean "auto"?'),
        (["--quiet=yes"], "--quiet/--no-quiet: ignored explicit argument 'yes'"),
        (["another"], "`cic test` takes only RUN, not another; settings are --name value"),
    ],
)
def test_error_messages(words: list[str], message: str) -> None:
    with pytest.raises(UserError) as error:
        parsed(*words)
    assert str(error.value) == message


def test_a_missing_argument_is_explained() -> None:
    with pytest.raises(UserError, match="`cic test` needs RUN: A folder"):
        parse()


def test_docstrings_of_fields_are_the_help() -> None:
    shown = " ".join(make_parser().format_help().split())
    assert "--video, --no-video A film on two lines, 100 % of the time. (default: on)" in shown
    assert "--num-reps INT How often. (default: 7)" in shown


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("num_reps must be at least 1, not 0", "--num-reps must be at least 1, not 0"),
        ("steps must be at least 1 with num_reps.", "--steps must be at least 1 with --num-reps."),
        ("the steps of /a/num_reps and of num_envs", "the steps of /a/num_reps and of num_envs"),
        ("omit `steps` or set `steps=20`, see `cic runs`", "omit --steps or set --steps 20, see `cic runs`"),
        ('unknown setting "num_reps" in num_reps.json', 'unknown setting "num_reps" in num_reps.json'),
    ],
)
def test_parameters_in_messages_become_flags(message: str, shown: str) -> None:
    assert make_parser().with_flag_names(message) == shown


def test_an_import_in_a_message_becomes_a_flag() -> None:
    assert with_import_flag("first: `import FILE`; see `cic runs`") == "first: --import FILE; see `cic runs`"


def test_the_text_of_a_command() -> None:
    assert command_text("explore", "my run", at=None, skill=["0.5", "1"], num_envs=2) == (
        "cic explore 'my run' --skill 0.5 1 --num-envs 2"
    )
