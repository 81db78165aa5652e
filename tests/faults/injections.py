"""The kinds of faults. Each draws one, injects it, and returns "" if the run survived, else what was wrong.

To survive means: the process ends in a sentence or by the signal, nothing outside of the folder changes, and what is
continued afterwards ends with the bytes of the run that nobody disturbed.
"""

from __future__ import annotations

from collections.abc import Callable

from .cases import Case
from .commands import on_damaged_source, on_forged_folder, on_odd_files
from .damage import damaged_checkpoint, damaged_small_file
from .deaths import compiled, half_written, killed_at_a_file_operation, killed_at_any_moment, signalled
from .disks import failing_read, failing_write, file_too_large, full_disk, raced, read_only_disk
from .sweeps import disturbed_export, disturbed_sweep
from .untrusted import forged, hostile_link, misbehaving_environment

KINDS: dict[str, Callable[[Case], str]] = {
    "killed at any moment": killed_at_any_moment,
    "killed at a file operation": killed_at_a_file_operation,
    "killed with a file half written": half_written,
    "SIGINT, SIGTERM, SIGHUP": signalled,
    "damaged newest checkpoint": damaged_checkpoint,
    "damaged metrics, status, result, trials": damaged_small_file,
    "full disk": full_disk,
    "limited file size": file_too_large,
    "failing operation": failing_write,
    "read-only disk": read_only_disk,
    "failing read": failing_read,
    "three starts in one folder": raced,
    "links, FIFOs, folders for files": hostile_link,
    "forged with right checksums": forged,
    "misbehaving environment": misbehaving_environment,
    "disturbed sweep": disturbed_sweep,
    "disturbed export": disturbed_export,
    "command on a damaged folder": on_damaged_source,
    "command on a forged folder": on_forged_folder,
    "command on links, FIFOs, folders": on_odd_files,
    "compiled run, killed": compiled,
}
COSTLY = ("compiled run, killed",)
"""Kinds that are injected only if `--only` names them: compiling takes seconds per process."""
