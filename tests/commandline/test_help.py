"""`--help`: at once, in groups, with the required things first; and the table that makes it quick is a true copy."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from cic import cli
from cic.commandline import settings_table
from cic.commandline.commands import COMMANDS


def say(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    assert cli.main(list(args)) == 0
    return capsys.readouterr().out


def test_the_table_of_settings_is_what_the_classes_say() -> None:
    """If not: python -m cic.commandline.settings_table"""
    copy, true = settings_table.known(), settings_table.describe()
    mine = {name: method for name, method in true["objectives"].items() if name in copy["objectives"]}
    assert copy == true | {"objectives": mine}  # other tests may have registered methods
    from cic.core.paper_scores import TITLES

    assert set(TITLES) <= set(copy["objectives"]), "python -m cic.commandline.settings_table"


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_the_help_of_every_command_comes_within_a_second(command: str) -> None:
    code = (
        f"import sys; from cic import cli; code = cli.main(['{command}', '--help']); sys.exit('torch' in sys.modules)"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    worked = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime  # whatever else the machine does
    assert worked < 1
    assert f"usage: cic {command}" in done.stdout


def test_settings_come_in_groups_and_what_is_required_first(capsys: pytest.CaptureFixture[str]) -> None:
    shown = say(capsys, "pretrain", "--help")
    titles = [line for line in shown.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert titles == ["what:", "how long:", "learner (ddpg):", "method (CIC):", "machine:"]
    first = shown.split("what:\n")[1]
    assert first.startswith("  --domain TEXT")
    assert "(required)" in first.split("--objective")[0]


def test_rare_settings_are_shown_when_all_are_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    short, whole = say(capsys, "pretrain", "--help"), say(capsys, "pretrain", "--help-all")
    for flag in ("--checkpoint-every", "--tau", "--wandb-group", "--compile"):
        assert f"  {flag} " not in short
        assert f"  {flag} " in whole
    assert "cic pretrain --help-all" in short
    assert "--help-all" not in whole


@pytest.mark.parametrize("command", sorted(COMMANDS))
@pytest.mark.parametrize("columns", [60, 80, 120])
def test_help_fits_the_terminal_and_says_nothing_twice(
    command: str, columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    shown = say(capsys, command, "--help-all")
    wide = [line for line in shown.splitlines() if len(line) > max(columns, 80)]
    assert not wide
    for clutter in ("{None}", "default: None", "config.options", "MISSING"):
        assert clutter not in shown
    flags = [line.split()[0] for line in shown.splitlines() if line.startswith("  --")]
    assert len(flags) == len(set(flags))


def test_the_scale_and_the_preset_fill_in_the_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    shown = " ".join(say(capsys, "pretrain", "--help", "--scale", "smoke").split())
    assert "as in the text. (default: infonce)" in shown, "smoke takes the loss that works with small batches"
    shown = " ".join(say(capsys, "pretrain", "--help", "--preset", "paper").split())
    assert "as in the text. (default: infonce)" in shown
    assert "as in the text. (default: released)" in " ".join(say(capsys, "pretrain", "--help").split())


def test_help_for_what_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    for flag, name, near in (("--objective", "cid", "cic"), ("--learner", "sacc", "sac"), ("--scale", "smok", "smoke")):
        assert cli.main(["pretrain", "--help", flag, name]) == 2
        assert f'"{name}"; did you mean "{near}"?' in capsys.readouterr().err
