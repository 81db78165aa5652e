"""What is measured of a finished run after training, kept in the run's own folder.

`RUN/measured/NAME.json` holds what a measurement gave. It is made once, so an interrupted command goes on with the next
run, and a folder whose weights were thrown away can still be drawn.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cic.core.errors import UserError
from cic.experiments.base import Measurement
from cic.runs.links import refuse_links
from cic.runs.storage import write_json
from cic.runs.untrusted_json import read_object

FOLDER = "measured"


def read_measured(run: Path, name: str, scale: str) -> dict[str, Any] | None:
    """What was measured at this scale; None if nothing was, or the file is damaged."""
    kept = read_object(run / FOLDER / f"{name}.json")
    if isinstance(kept, str) or kept.get("scale") != scale or not isinstance(kept.get("values"), dict):
        return None
    return dict(kept["values"])


def measure(run: Path, name: str, scale: str, measurement: Measurement) -> dict[str, Any]:
    """From the file, or anew."""
    kept = read_measured(run, name, scale)
    if kept is not None:
        return kept
    refuse_links(run)
    folder = run / FOLDER
    if folder.is_symlink():
        raise UserError(f"{folder} is a link: cic writes to a run folder only if it holds nothing but files")
    folder.mkdir(exist_ok=True)
    values = measurement(run, scale)
    write_json(folder / f"{name}.json", {"scale": scale, "values": values})
    return values
