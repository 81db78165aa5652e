"""A finetuning in a separate process, so that the bodies on the page keep moving."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from cic.core.errors import Interrupted, UserError
from cic.core.imports import import_first, imported
from cic.runs.untrusted import read_object

_PROGRAM = "import sys; from cic.explore.background_finetuning import main; sys.exit(main(sys.argv[1]))"


class BackgroundFinetuning:
    """Trains a run on a task from the skill that is shown."""

    def __init__(self, run: str, task: str, skill: list[float], steps: int, out: Path) -> None:
        self.out, self._steps = out, steps
        given = {"run": run, "task": task, "skill": skill, "steps": steps, "out": str(out), "imports": imported()}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, json.dumps(given)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
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
                self._process.wait()
        if self._process.stderr is not None:
            self._process.stderr.close()


def main(text: str) -> int:
    """Run the finetuning that a page has started; the exit code is that of the command line."""
    given: dict[str, Any] = json.loads(text)
    try:
        import_first(given["imports"])
        from cic.api import finetune

        settings = {"steps": given["steps"], "skill": tuple(given["skill"])}
        finetune(given["run"], given["task"], out=given["out"], quiet=True, **settings)
    except (UserError, Interrupted) as error:
        print(error, file=sys.stderr)
        return 2
    return 0
