"""`--help`: without heavy imports, in groups, with the defaults of the chosen scale, objective and learner."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from cic.commandline import settings_table
from cic.commandline.commands import COMMANDS
from cic.core.paper_scores import TITLES

HEAVY = {"torch", "ray", "matplotlib", "gymnasium", "mujoco", "viser"}
Output = Callable[..., str]


def text(output: str) -> str:
    """The words without the line breaks."""
    return " ".join(output.split())


def test_stored_table_equals_the_dataclasses() -> None:
    """If not: make generated"""
    stored, described = settings_table.stored(), settings_table.describe()
    bundled = {name: method for name, method in described["objectives"].items() if name in stored["objectives"]}
    assert stored == described | {"objectives": bundled}  # other tests may have registered objectives
    assert set(TITLES) <= set(stored["objectives"])


@pytest.mark.parametrize("words", [["--help"], *([command, "--help"] for command in COMMANDS)], ids=" ".join)
def test_help_imports_nothing_heavy(words: list[str]) -> None:
    code = "import sys; from cic import cli; cli.main(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    assert not HEAVY & set(done.stderr.split())
    assert done.stdout.startswith("usage: cic")


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"], ["help"]])
def test_overview_lists_the_commands(words: list[str], output: Output) -> None:
    shown = output(*words)
    for command, about in COMMANDS.items():
        assert f" {command} {about}" in text(shown)


def test_settings_are_in_groups_with_the_required_ones_first(output: Output) -> None:
    shown = output("pretrain", "--help")
    titles = [line for line in shown.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert titles == ["run:", "duration:", "machine:", "method (CIC):", "learner (ddpg):", "general:"]
    first = shown.split("run:\n")[1]
    assert first.startswith("  --domain TEXT")
    assert "(required)" in first.split("--objective")[0]


def test_help_all_includes_rare_settings(output: Output) -> None:
    short, whole = output("pretrain", "--help"), output("pretrain", "--help-all")
    for flag in ("--checkpoint-every", "--tau", "--wandb-group", "--compile"):
        assert f"  {flag} " not in short
        assert f"  {flag} " in whole


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("columns", [60, 80, 120])
def test_help_fits_the_terminal_and_lists_each_flag_once(
    command: str, columns: int, output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    shown = output(command, "--help-all")
    assert shown.startswith(f"usage: cic {command}")
    assert not [line for line in shown.splitlines() if len(line) > max(columns, 80)]
    for internal in ("None", "SUPPRESS", "MISSING", "config.options"):
        assert internal not in shown
    flags = [line.split()[0] for line in shown.splitlines() if line.startswith("  --")]
    assert len(flags) == len(set(flags))


@pytest.mark.parametrize(
    ("words", "shown", "hidden"),
    [
        ("pretrain", ["--temperature FLOAT T of the contrastive loss. (default: 0.5)", "(default: 450,000)"], []),
        ("pretrain", ["--representation, --no-representation", "--seed INT", "--resume PATH", "--import"], []),
        ("pretrain --objective rnd --scale paper", ["(default: 2,000,000)"], ["--temperature"]),
        ("pretrain --preset released", ["as in the paper. (default: released)"], []),
        ("pretrain --scale smoke", ["as in the paper. (default: infonce)"], []),
        ("pretrain --preset paper", ["as in the paper. (default: infonce)"], []),
        ("pretrain --objective metra", ["learner (sac):", "--alpha FLOAT"], ["--noise "]),
        ("pretrain --objective metra --scale paper --help-all", ["--update-every INT", "(default: 32)"], []),
        ("pretrain --learner td3", ["--target-noise FLOAT", "--actor-every INT"], ["--alpha"]),
        ("finetune", ["--noise FLOAT", "--noise-clip FLOAT", "skill search:"], ["--alpha", "--actor-every"]),
        ("finetune --learner sac", ["--alpha FLOAT", "--target-entropy FLOAT", "--lr FLOAT"], ["--noise "]),
    ],
)
def test_flags_and_defaults_of_the_choice(words: str, shown: list[str], hidden: list[str], output: Output) -> None:
    page = text(output(*words.split(), "--help"))
    for part in shown:
        assert part in page
    for part in hidden:
        assert part not in page


@pytest.mark.parametrize(
    ("flag", "name", "near"), [("objective", "cid", "cic"), ("learner", "sacc", "sac"), ("scale", "smok", "smoke")]
)
def test_help_for_an_unknown_name(flag: str, name: str, near: str, error: Output) -> None:
    assert f'unknown {flag} "{name}"; did you mean "{near}"?' in error("pretrain", "--help", f"--{flag}", name)
