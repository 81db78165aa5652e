"""The shell's Tab: quick, and right for the words so far."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cic import cli
from cic.commandline.commands import COMMANDS
from cic.commandline.completion import words


def test_commands_flags_and_values() -> None:
    assert words([""]) == list(COMMANDS)
    assert words(["pre"]) == ["pretrain"]
    assert words(["pretrain", "--tem"]) == ["--temperature"]
    assert words(["pretrain", "--objective", "rnd", "--tem"]) == [], "another method's option"
    assert words(["pretrain", "--objective", "di"]) == ["diayn", "disagreement"]
    assert words(["pretrain", "--learner", "s"]) == ["sac"]
    assert words(["pretrain", "--learner", "sac", "--alp"]) == ["--alpha"]
    assert words(["pretrain", "--domain", "walk"]) == ["walker"]
    assert words(["finetune", "runs/x", "--task", "walker-r"]) == ["walker-run"]
    assert words(["pretrain", "--scale", ""]) == ["smoke", "laptop", "paper"]
    assert words(["export", "x", "--format", "o"]) == ["onnx"]


def test_files_and_half_typed_names_are_left_to_the_shell() -> None:
    assert words(["finetune", "runs/"]) == []
    assert words(["pretrain", "--out", "ru"]) == []
    assert words(["pretrain", "--objective", "ci", "--x"]) == []
    assert words(["nonsense", "--x"]) == []


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes(tmp_path: Path) -> None:
    bin = tmp_path / "cic"
    bin.write_text(f'#!/bin/sh\nexec {sys.executable} -m cic.cli "$@"\n')
    bin.chmod(0o755)
    script = subprocess.run([bin, "completion", "bash"], capture_output=True, text=True, check=True).stdout
    ask = 'COMP_WORDS=(cic pretrain --obj); COMP_CWORD=2; _cic; printf "%s " "${COMPREPLY[@]}"'
    done = subprocess.run(
        ["bash", "-c", f"PATH={tmp_path}:$PATH; {script}\n{ask}"], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["--objective"]
    assert done.stderr == ""


def test_a_tab_takes_no_torch() -> None:
    code = "import sys; from cic.commandline.completion import words; words(['pretrain', '--']); "
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", f"{code} sys.exit('torch' in sys.modules)"], check=True)
    assert time.perf_counter() - began < 2


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_has_a_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", shell]) == 0
    assert "cic completion words" in capsys.readouterr().out
