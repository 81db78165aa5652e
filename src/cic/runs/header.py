"""The header of a run folder, config.json: the format, the kind of run, and its settings."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from cic.core.errors import UserError
from cic.core.types import Spaces
from cic.runs.untrusted import plain, read_object

FORMAT = 3
FORMATS = (2, FORMAT)
"""The formats of run folders that this version reads. 2: cic 0.2, whose replay and training state differ."""
KINDS = ("pretrain", "finetune", "offline")
_REMOVED_SETTINGS = ("pull", "pull_updates", "critic_rank", "second_proposal")
_LARGEST_SPACE = 1_000_000


def read_header(path: Path) -> dict[str, Any]:
    """The content of config.json, with the fields that every run has."""
    file = path / "config.json"
    if not os.path.lexists(file):
        raise UserError(f"{file} is missing: is {path} a run folder?")
    header = read_object(file)
    if isinstance(header, str):
        raise UserError(f"{path}: {header}")
    if not {"format", "kind", "config"} <= header.keys():
        raise UserError(f"{file} is not the config of a run: give the folder of a run")
    if header["format"] not in FORMATS:
        age, way = ("a newer", "upgrade cic") if header["format"] != 1 else ("an earlier", "use that version")
        raise UserError(
            f"{path} was made by {age} version of cic ({plain(header.get('version', '?'))}, run format "
            f"{plain(header['format'])}; this version reads {' and '.join(map(str, FORMATS))}): {way} to open it"
        )
    fits = header["kind"] in KINDS and isinstance(header["config"], dict)
    if not fits or not isinstance(header.get("discard_from"), int | None):
        raise UserError(f"{file} is not the config of a run: give the folder of a run")
    return header


def current_settings(header: dict[str, Any]) -> dict[str, Any]:
    """The settings of a run, without those of format 2 that no longer exist. Only training used them."""
    config: dict[str, Any] = header["config"]
    if header["format"] == FORMAT:
        return config
    return {name: value for name, value in config.items() if name not in _REMOVED_SETTINGS}


def possible_spaces(sizes: Any) -> Spaces | None:
    """The sizes of observations and actions in a header, if they are possible."""
    if not isinstance(sizes, dict) or sizes.keys() not in ({"obs", "action"}, {"obs", "action", "choices"}):
        return None
    choices = sizes.get("choices", [])
    if not isinstance(choices, list) or not all(_is_size(size) for size in (sizes["obs"], sizes["action"], *choices)):
        return None
    if choices and sum(choices) != sizes["action"]:
        return None
    return Spaces(sizes["obs"], sizes["action"], tuple(choices))


def _is_size(size: Any) -> bool:
    return type(size) is int and 1 <= size <= _LARGEST_SPACE
