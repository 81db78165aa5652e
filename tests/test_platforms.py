"""cic imports and trains without what only POSIX systems have. Windows itself is not tested here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

MODULES = ("fcntl", "grp", "pwd", "resource", "termios", "tty")
"""Modules of the standard library that Windows lacks."""
NAMES = {
    "os": (
        "O_NOFOLLOW",
        "O_NONBLOCK",
        "O_DIRECTORY",
        "fork",
        "getuid",
        "geteuid",
        "mkfifo",
        "sysconf",
        "sched_getaffinity",
    ),
    "signal": ("SIGHUP", "SIGALRM", "SIGKILL", "SIGUSR1", "pthread_kill", "setitimer"),
}

PREPARED = f"""
import importlib, os, pkgutil, signal, sys, warnings
from pathlib import Path
import dm_control, gymnasium, mujoco, torch, torch.utils.tensorboard  # they may use what the system offers
for module in {MODULES!r}:
    sys.modules[module] = None
for module, names in {NAMES!r}.items():
    for name in names:
        if hasattr(sys.modules[module], name):
            delattr(sys.modules[module], name)
"""


def run(code: str) -> str:
    command = [sys.executable, "-c", PREPARED + code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_import_without_posix_modules() -> None:
    """Without any preparation, as a user's first line."""
    code = f"import sys\nfor name in {MODULES!r}: sys.modules[name] = None\nimport cic\ncic.pretrain"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_module_imports_without_posix_names() -> None:
    code = """
import cic
optional = ("cic.sweep", "cic.explore", "cic.__main__", "cic.cli")
for found in pkgutil.walk_packages(cic.__path__, "cic."):
    if not found.name.startswith(optional):
        importlib.import_module(found.name)
print("imported")
"""
    assert run(code) == "imported\n"


@pytest.mark.slow
def test_training_evaluating_and_resuming_without_posix_names(tmp_path: Path) -> None:
    code = f"""
warnings.filterwarnings("ignore", "flock not supported")  # filelock itself has no fcntl here
import cic
out = Path({str(tmp_path)!r})
settings = dict(scale="smoke", hidden=8, batch=8, steps=120, checkpoint_every=60, quiet=True)
skills = cic.pretrain("gridworld", "rnd", out=out / "skills", **settings).path
tuned = cic.finetune(skills, "reach_top_left", out=out / "tuned", **settings).path
print(len(cic.evaluate(tuned, episodes=2).returns["gridworld-reach_top_left"]))
print(cic.resume(skills, steps=150, quiet=True).result["step"])
from cic.core.memory import available_memory
from cic.runs.records import read
print([run.state for run in read([out])[0]])
"""
    assert run(code) == "2\n150\n['finished', 'finished']\n"
