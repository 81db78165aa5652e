"""What is measured of a finished run after training.

`RUN/measured/NAME.json` holds the values of a measurement, with pictures and films beside it. Each is measured once, so
an interrupted command continues with the next run, and figures can be drawn without weights.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cic.experiments.experiment import Measurement
from cic.runs.storage import write_json
from cic.runs.untrusted import check_folder, plain, read_object

FOLDER = "measured"


def read_measured(run: Path, name: str, scale: str) -> dict[str, Any] | None:
    """Return the values that were measured at this scale; None if there are none, or the file is damaged."""
    return values_at(read_object(run / FOLDER / f"{name}.json"), scale)


def values_at(stored: Any, scale: str) -> dict[str, Any] | None:
    """Return the values of a stored measurement if it was made at this scale."""
    if not isinstance(stored, dict) or stored.get("scale") != scale or not isinstance(stored.get("values"), dict):
        return None
    return dict(stored["values"])


def measure(run: Path, name: str, scale: str, measurement: Measurement) -> dict[str, Any]:
    """Return the stored values, or measure and store them."""
    stored = read_measured(run, name, scale)
    if stored is not None:
        return stored
    check_folder(run)
    folder = run / FOLDER
    folder.mkdir(exist_ok=True)
    values = measurement(run, scale)
    write_json(folder / f"{name}.json", {"scale": scale, "values": values})
    return values


def save_picture(path: Path, picture: Any) -> None:
    from matplotlib.image import imsave

    imsave(path, picture)


def measured_file(folder: Path | None, name: Any, ending: str | tuple[str, ...]) -> Path | None:
    """Return a file that a measurement left in `folder`; the folder is untrusted, so no other file."""
    if folder is None or not isinstance(name, str) or not name.endswith(ending) or Path(name).name != name:
        return None
    path = folder / name
    return path if path.is_file() and not path.is_symlink() and not folder.is_symlink() else None


def read_picture(folder: Path | None, name: Any) -> Any:
    """Return an array (height, width, 3), or the reason why there is none."""
    from matplotlib.image import imread

    path = measured_file(folder, name, ".png")
    if path is None:
        return plain(name) if not str(name).endswith(".png") else f"{plain(name)} is missing"
    try:
        return imread(path)[..., :3]
    except Exception as error:  # a damaged picture can raise any error
        return f"{path.name} cannot be read ({type(error).__name__})"
