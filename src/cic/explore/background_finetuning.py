"""A finetuning in a process of its own, so that the bodies on the page keep moving."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from cic.core.imports import imported
from cic.runs.untrusted import read_object


class BackgroundFinetuning:
    """Trains a run on a task from the skill that is shown."""

    def __init__(self, run: str, task: str, skill: list[float], steps: int, out: Path) -> None:
        self.out, self._steps = out, steps
        words = ["finetune", run, "--task", task, "--steps", str(steps), "--out", str(out), "--quiet"]
        words += ["--skill", *(f"{value:.9g}" for value in skill)]
        words += [word for name in imported() for word in ("--import", name)]
        out.parent.mkdir(parents=True, exist_ok=True)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "cic.cli", *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def progress(self) -> tuple[float, str | None]:
        """The share of the steps that are done, and the problem if the training has failed."""
        code = self._process.poll()
        if code is None:
            status = read_object(self.out / "status.json")
            step = 0 if isinstance(status, str) else status.get("step")
            return min(step / self._steps, 0.99) if isinstance(step, int) else 0.0, None
        if code == 0:
            return 1.0, None
        assert self._process.stderr is not None
        lines = self._process.stderr.read().strip().splitlines()
        return 1.0, f"the finetuning failed: {lines[-1] if lines else f'exit code {code}'}"

    def stop(self) -> None:
        """End the training; it saves a checkpoint and can be resumed."""
        if self.running:
            self._process.terminate()
            try:
                self._process.wait(20.0)
            except subprocess.TimeoutExpired:
                self._process.kill()
        if self._process.stderr is not None:
            self._process.stderr.close()
