"""Completion in the shells, each with the script that `cic completion` prints."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CASES = [
    (["pre"], {"pretrain"}),
    (["pretrain", "--tem"], {"--temperature"}),
    (["pretrain", "--alp"], {"--alpha"}),
    (["pretrain", "--objective", "di"], {"diayn", "disagreement"}),
    (["pretrain", "--domain", "walk"], {"walker"}),
    (["pretrain", "--scale", "la"], {"laptop"}),
    (["finetune", "folder", "--task", "walker-r"], {"walker-run"}),
    (["export", "folder", "--format", "on"], {"onnx"}),
    (["evaluate", "fol"], {"folder"}),
    (["pretrain", "--out", "fol"], {"folder"}),
]


def script(shell: str) -> str:
    command = [sys.executable, "-m", "cic.cli", "completion", shell]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    lines = [script("bash")]
    for words, _ in CASES:
        typed = " ".join(words)
        lines += [
            f"COMP_WORDS=(cic {typed}); COMP_CWORD={len(words)}; COMP_LINE='cic {typed}'; COMP_POINT=${{#COMP_LINE}}"
        ]
        lines += ["COMPREPLY=()", "$(complete -p cic | sed 's/.*-F \\([^ ]*\\).*/\\1/')", 'echo "${COMPREPLY[@]}"']
    done = subprocess.run(["bash", "-c", "\n".join(lines)], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert [set(line.split()) for line in done.stdout.splitlines()] == [found for _, found in CASES], done.stderr


@pytest.mark.skipif(shutil.which("fish") is None, reason="needs fish")
def test_fish(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    lines = [script("fish"), *(f"complete -C 'cic {' '.join(words)}'; echo END" for words, _ in CASES)]
    done = subprocess.run(["fish", "-c", "\n".join(lines)], capture_output=True, text=True, check=True, cwd=tmp_path)
    answers = [answer.splitlines() for answer in done.stdout.split("END\n")[:-1]]
    found = [{line.split("\t")[0].rstrip("/") for line in lines} for lines in answers]
    assert found == [expected for _, expected in CASES], done.stderr


@pytest.mark.skipif(shutil.which("zsh") is None, reason="needs zsh")
def test_zsh_accepts_the_script() -> None:
    code = f"autoload -U compinit && compinit -u -D\n{script('zsh')}"
    done = subprocess.run(["zsh", "-f", "-c", 'eval "$0"; print $_comps[cic]', code], capture_output=True, text=True)
    assert done.stdout.strip() == "_shtab_cic"
    assert done.stderr == ""


def test_completion_imports_no_torch() -> None:
    code = "import sys; from cic import cli; cli.main(['completion', 'bash']); sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
