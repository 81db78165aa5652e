"""The kinds of faults. Each draws one, injects it, and returns "" if the run survived, else what was wrong.

To survive means: the process ends in a sentence or by the signal, nothing outside of the folder changes, and what is
continued afterwards ends with the bytes of the run that nobody disturbed.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cic import api
from cic.learning import compilation
from cic.runs import lines, storage

from .folders import FINETUNE, contents, forge, forge_arrays, forge_state, newest, stopped
from .mutations import mutate
from .processes import FINE, MISTAKE, STOPPED, End, SmallDisk, at_event, at_operation, kill, limit_files, live

Rng = np.random.Generator


@dataclass(frozen=True)
class Scenario:
    """A run that was never disturbed, how to start it, and how many events it has."""

    name: str
    reference: Path
    start: Callable[[Path], Any]
    events: int


@dataclass
class Case:
    """One injection: a folder of its own, and a run to disturb there."""

    scenario: Scenario
    home: Path
    rng: Rng

    @property
    def path(self) -> Path:
        return self.home / "run"

    def go(self) -> Any:
        """Begin the run, or continue it."""
        if (self.path / "config.json").exists():
            return api.resume(self.path, quiet=True)
        return self.scenario.start(self.path)

    def live(self, *faults: Callable[[], Any]) -> End:
        def action() -> None:
            for fault in faults:
                fault()
            self.go()

        return live(action, self.home / "said")

    def stop(self) -> None:
        stopped(self.scenario.reference, self.path)

    def to_the_end(self) -> str:
        """Continue undisturbed; what differs in the end."""
        for _ in range(3):
            end = self.live()
            if end.code != FINE and "is finished already" not in end.said:
                return f"cannot go on: {end.code} {end.said[-300:]}"
            if (self.path / "result.json").exists():
                return self.difference()
        return "makes no progress"

    def difference(self) -> str:
        got, expected = contents(self.path), contents(self.scenario.reference)
        if got.keys() != expected.keys():
            return f"other files: {sorted(got.keys() ^ expected.keys())}"
        different = [name for name, value in expected.items() if got[name] != value]
        if different:
            return f"differs: {different}"
        state = json.loads((self.path / "status.json").read_text())["state"]
        return "" if state == "finished" else f"the status says {state}"


def sentence(end: End, *codes: int) -> str:
    """Whether a child ended as it may."""
    if end.code in codes and "Traceback" not in end.said:
        return ""
    return f"ended with {end.code}: {end.said[-600:]}"


# ---- deaths ----------------------------------------------------------------------------------------------------


def killed_at_any_moment(case: Case) -> str:
    """SIGKILL at a random call, up to three times in the life of a run."""
    for _ in range(int(case.rng.integers(1, 4))):
        number = int(case.rng.integers(1, case.scenario.events))
        if wrong := sentence(case.live(lambda number=number: at_event(number, kill)), FINE, -signal.SIGKILL):
            return wrong
        if (case.path / "result.json").exists():
            break
    return case.to_the_end()


OPERATIONS: list[tuple[Any, str, int]] = [
    (os, "open", 40),
    (os, "fsync", 60),
    (os, "replace", 20),
    (os, "rename", 8),
    (os, "unlink", 40),
    (os, "mkdir", 12),
    (os, "close", 60),
    (Path, "rename", 6),
    (shutil, "rmtree", 12),
    (shutil, "copyfile", 8),
    (storage, "save_tensors", 12),
    (storage, "save_arrays", 16),
    (lines.LineLog, "write", 12),
]


def killed_at_a_file_operation(case: Case) -> str:
    """SIGKILL before or after the n-th open, sync, rename, removal or write, on a new run or a stopped one."""
    owner, name, most = OPERATIONS[case.rng.integers(len(OPERATIONS))]
    number, moment = int(case.rng.integers(1, most)), str(case.rng.choice(["before", "after"]))
    if case.rng.random() < 0.5:
        case.stop()
    end = case.live(lambda: at_operation(owner, name, number, lambda *_: kill(), moment))
    return sentence(end, FINE, -signal.SIGKILL) or case.to_the_end()


def half_written(case: Case) -> str:
    """SIGKILL while a file of a checkpoint is half on disk, as after a power failure."""
    number, share = int(case.rng.integers(1, 14)), float(case.rng.random())
    name = str(case.rng.choice(["save_tensors", "save_arrays"]))

    def cut(_: Any, path: Path) -> None:
        os.truncate(path, int(path.stat().st_size * share))
        kill()

    end = case.live(lambda: at_operation(storage, name, number, cut, "after"))
    return sentence(end, FINE, -signal.SIGKILL) or case.to_the_end()


def signalled(case: Case) -> str:
    """SIGINT, SIGTERM or SIGHUP at a random call: the run saves and stops, or was not yet begun."""
    which = int(case.rng.choice([signal.SIGINT, signal.SIGTERM, signal.SIGHUP]))
    number = int(case.rng.integers(1, case.scenario.events))
    end = case.live(lambda: at_event(number, lambda: kill(which)))
    if wrong := sentence(end, FINE, STOPPED, -which):
        return wrong
    if "saved at step" in end.said:
        status = json.loads((case.path / "status.json").read_text())
        if status["state"] != "interrupted" or int(newest(case.path).name) != status["step"]:
            return f"it says that it saved, but {status}"
    return case.to_the_end()


# ---- damage ----------------------------------------------------------------------------------------------------


def harm(path: Path, rng: Rng) -> None:
    """Cut off, flip a byte, fill with zeros, empty, append to or delete."""
    content = bytearray(path.read_bytes())
    how = rng.choice(["cut", "flip", "zero", "empty", "append", "delete"])
    if how == "delete":
        path.unlink()
        return
    if how == "flip" and content:
        content[rng.integers(len(content))] ^= 1 << int(rng.integers(8))
    cut = content[: int(rng.integers(max(len(content), 1)))]
    harmed = {"cut": cut, "flip": content, "zero": bytes(len(content)), "empty": b"", "append": content + b"\0" * 9}
    path.write_bytes(bytes(harmed[str(how)]))


def damaged_checkpoint(case: Case) -> str:
    """Any harm to any file of the newest checkpoint: the one before it leads to the same end."""
    shutil.copytree(case.scenario.reference, case.path)
    (case.path / "result.json").unlink()
    harm(case.rng.choice(sorted(newest(case.path).iterdir())), case.rng)
    return case.to_the_end()


def damaged_small_file(case: Case) -> str:
    """Any harm to metrics, status, result, trials or inherited weights: a checkpoint knows better."""
    names = ["metrics.jsonl", "timing.jsonl", "status.json", "result.json", "trials.json"]
    if finished := case.rng.random() < 0.5:
        shutil.copytree(case.scenario.reference, case.path)
    else:
        case.stop()
    present = [name for name in names if (case.path / name).exists()]
    chosen = str(case.rng.choice(present))
    before = (case.path / chosen).read_bytes()
    harm(case.path / chosen, case.rng)
    if finished and chosen not in ("result.json", "status.json"):
        (case.path / "result.json").unlink()
    wrong = case.to_the_end()
    if wrong and chosen == "result.json" and _still_an_object(case.path / chosen):
        # A flipped digit inside JSON that is still valid cannot be told from a result.
        (case.path / chosen).write_bytes(before)
        return case.difference()
    return wrong


def _still_an_object(path: Path) -> bool:
    try:
        return isinstance(json.loads(path.read_bytes()), dict)
    except ValueError:
        return False


# ---- disks -----------------------------------------------------------------------------------------------------


def full_disk(case: Case) -> str:
    """A real file system without room, of a random size; with room again, the run goes on."""
    kilobytes = int(case.rng.integers(4, 400))
    if case.rng.random() < 0.5:
        case.stop()
        shutil.move(case.path, case.home / "before")
    place = case.home / "disk"
    place.mkdir()
    inner = Case(case.scenario, place, case.rng)

    def disaster() -> None:
        disk = SmallDisk(place, 64 << 20)
        if (case.home / "before").exists():
            shutil.copytree(case.home / "before", inner.path)
        used = sum(file.stat().st_blocks * 512 for file in place.rglob("*"))
        disk.resize((used // 4096 + 1) * 4096 + kilobytes * 1024)
        end = live(inner.go, case.home / "inner")
        wrong = sentence(end, FINE, MISTAKE)
        disk.resize(64 << 20)
        wrong = wrong or inner.to_the_end()
        (case.home / "wrong").write_text(wrong)

    end = live(disaster, case.home / "said")
    if end.code != FINE:
        return f"the disk: {end.said[-300:]}"
    return (case.home / "wrong").read_text()


def file_too_large(case: Case) -> str:
    """A limit on the size of files (RLIMIT_FSIZE), which fails writes of Python, safetensors and TensorBoard alike."""
    size = int(case.rng.integers(1, 30_000))
    if case.rng.random() < 0.5:
        case.stop()
    end = case.live(lambda: limit_files(size))
    return sentence(end, FINE, MISTAKE) or case.to_the_end()


def failing_write(case: Case) -> str:
    """ENOSPC, EIO or EDQUOT from the n-th operation on files."""
    owner, name, most = OPERATIONS[case.rng.integers(len(OPERATIONS) - 1)]
    number = int(case.rng.choice([errno.ENOSPC, errno.EIO, errno.EDQUOT]))
    count = int(case.rng.integers(1, most))

    def fail(*args: Any) -> None:
        raise OSError(number, os.strerror(number), str(args[0]) if args else None)

    if name == "close":  # whose descriptor would be lost
        name = "open"
    if case.rng.random() < 0.5:
        case.stop()
    end = case.live(lambda: at_operation(owner, name, count, fail, "before"))
    return sentence(end, FINE, MISTAKE) or case.to_the_end()


def read_only_disk(case: Case) -> str:
    """A file system that turned read-only: a sentence, and everything as it was."""
    case.stop()
    shutil.move(case.path, case.home / "before")
    place = case.home / "disk"
    place.mkdir()
    inner = Case(case.scenario, place, case.rng)

    def disaster() -> None:
        disk = SmallDisk(place, 64 << 20)
        shutil.copytree(case.home / "before", inner.path)
        before = contents(inner.path)
        disk.read_only(True)
        wrong = sentence(live(inner.go, case.home / "inner"), MISTAKE)
        wrong = wrong or sentence(live(lambda: api.load(inner.path), case.home / "inner"), FINE)
        disk.read_only(False)
        if not wrong and contents(inner.path) != before:
            wrong = "something changed"
        (case.home / "wrong").write_text(wrong or inner.to_the_end())

    end = live(disaster, case.home / "said")
    if end.code != FINE:
        return f"the disk: {end.said[-300:]}"
    return (case.home / "wrong").read_text()


def failing_read(case: Case) -> str:
    """EIO or EACCES when a stopped run is read: nothing is deleted, and the next try goes on."""
    case.stop()
    number = int(case.rng.choice([errno.EIO, errno.EACCES]))
    count = int(case.rng.integers(1, 16))
    owner, name = [(os, "open"), (storage, "load_arrays"), (storage, "load_tensors")][case.rng.integers(3)]
    before = sorted(folder.name for folder in (case.path / "checkpoints").iterdir())

    def fail(*args: Any) -> None:
        raise OSError(number, os.strerror(number), str(args[0]))

    end = case.live(lambda: at_operation(owner, name, count % 5 + 1 if name != "open" else count, fail, "before"))
    if wrong := sentence(end, FINE, MISTAKE):
        return wrong
    left = sorted(folder.name for folder in (case.path / "checkpoints").iterdir() if folder.name.isdigit())
    if end.code == MISTAKE and left != before:
        return f"after a failed read there are {left}, before {before}"
    return case.to_the_end()


# ---- company ---------------------------------------------------------------------------------------------------


def raced(case: Case) -> str:
    """Three processes start with one --out, as far apart as a random moment: one run, and two sentences."""
    delays = case.rng.random(3) * 0.3
    children = []
    for index, delay in enumerate(delays):
        child = os.fork()
        if child == 0:
            import time

            time.sleep(float(delay))
            end = live(lambda: case.scenario.start(case.path), case.home / f"said-{index}")
            os._exit(end.code if end.code in (FINE, MISTAKE) else 1)
        children.append(child)
    codes = sorted(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)
    if codes != [FINE, MISTAKE, MISTAKE]:
        return f"the three ended with {codes}"
    return case.difference()


# ---- strangers -------------------------------------------------------------------------------------------------


def hostile_link(case: Case) -> str:
    """A link, a FIFO or a folder in place of a run's file: refused, and its target untouched."""
    case.stop()
    precious = case.home / "precious"
    precious.write_text("mine")
    files = [str(file.relative_to(case.path)) for file in case.path.rglob("*") if file.is_file()]
    names = [*files, ".lock", ".status.json.part", ".metrics.jsonl.part", ".result.json.part", "result.json"]
    target = case.path / str(case.rng.choice(names))
    target.unlink(missing_ok=True)
    how = case.rng.choice(["link", "dangling", "fifo", "folder", "hard link"])
    if how == "link":
        target.symlink_to(precious)
    elif how == "dangling":
        target.symlink_to(case.home / "nowhere")
    elif how == "fifo":
        os.mkfifo(target)
    elif how == "folder":
        target.mkdir()
    else:
        target.hardlink_to(precious)
    ends = [case.live(), live(lambda: api.load(case.path), case.home / "said")]
    for end in ends:
        if wrong := sentence(end, FINE, MISTAKE):
            return f"{how} at {target.name}: {wrong}"
    if precious.read_text() != "mine" or (case.home / "nowhere").exists():
        return f"{how} at {target.name}: wrote outside of the folder"
    return ""


def forged(case: Case) -> str:
    """A config, state or array changed at random, with right checksums: a sentence, or a run like any other."""
    case.stop()
    precious = {file.name for file in case.home.iterdir()} | {"said"}
    what = case.rng.choice(["config", "state", "arrays"])
    if what == "config":
        forge(case.path, lambda header: mutate(header["config"], case.rng))
    elif what == "state":
        forge_state(newest(case.path), lambda state: mutate(state, case.rng))
    else:
        name = str(case.rng.choice(["agent", "optimisers", "replay", "env", "loop", "phase"]))
        forge_arrays(newest(case.path), name, lambda arrays: _change_array(arrays, case.rng))

    def resume() -> None:
        compilation.wanted = lambda *_: False  # which takes long
        signal.signal(signal.SIGALRM, lambda *_: kill(signal.SIGTERM))  # a million steps may be left
        signal.alarm(3)
        case.go()

    ends = [live(lambda: api.load(case.path), case.home / "said"), live(resume, case.home / "said")]
    for end in ends:
        if wrong := sentence(end, FINE, MISTAKE, STOPPED):
            return f"{what}: {wrong}"
        if end.megabytes > 1500:
            return f"{what}: {end.megabytes:.0f} MB of memory"
    if {file.name for file in case.home.iterdir()} - precious:
        return f"{what}: wrote outside of the folder"
    return ""


def _change_array(arrays: dict[str, Any], rng: Rng) -> None:
    if not arrays:
        return
    name = str(rng.choice(sorted(arrays)))
    array = arrays[name]
    how = rng.choice(["value", "shape", "dtype", "missing", "surplus"])
    if how == "value" and array.size:
        values = [0, -1, 1, 10**9, -(10**9)] + ([np.nan, np.inf, 3e38] if array.dtype.kind == "f" else [])
        array.reshape(-1)[rng.integers(array.size)] = array.dtype.type(
            values[rng.integers(len(values))] % 256 if array.dtype == np.uint8 else values[rng.integers(len(values))]
        )
    elif how == "shape":
        arrays[name] = np.concatenate([array.reshape(-1), array.reshape(-1)[:1]])
    elif how == "dtype":
        arrays[name] = array.astype(np.float64 if array.dtype != np.float64 else np.int32)
    elif how == "missing":
        del arrays[name]
    else:
        arrays["surplus"] = np.zeros(3)


def misbehaving_environment(case: Case) -> str:
    """The environment raises, or returns something else than it should, at a random step; then it is mended."""
    from .odd_environment import Odd, register

    how = str(case.rng.choice(Odd.WAYS))
    at = int(case.rng.integers(1, FINETUNE["steps"]))
    settings = {"num_envs": 1, "seed": int(case.rng.integers(100))}

    def begin(path: Path, how: str) -> None:
        register(how, at)
        if (path / "config.json").exists():
            api.resume(path, quiet=True)
        else:
            from .folders import pretrain

            pretrain(path, "rnd", "odd", **settings)

    reference = case.home / "reference"
    ends = [
        live(lambda: begin(reference, "well"), case.home / "said"),
        live(lambda: begin(case.path, how), case.home / "said"),
        live(lambda: begin(case.path, "well"), case.home / "said"),
    ]
    wrong = sentence(ends[0], FINE) or sentence(ends[1], MISTAKE) or sentence(ends[2], FINE)
    if wrong:
        return f"{how}: {wrong}"
    scenario = Scenario("odd", reference, lambda path: None, 0)
    return Case(scenario, case.home, case.rng).difference()


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
}
