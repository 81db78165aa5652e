"""The command line. The only module that knows it; everything heavy is imported by the command that needs it."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import io
import json
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from cic import __version__
from cic.core.errors import Interrupted, UserError, unknown

COMMANDS = {
    "pretrain": "discover skills in a domain, without rewards",
    "finetune": "adapt a pre-trained run to a task (or --scratch)",
    "evaluate": "returns of a run's agent",
    "skills": "what each skill of a run does: a table, a picture, a video",
    "report": "tables, figures and one HTML page from run folders",
    "compare": "two groups of runs: difference and probability of improvement",
    "envs": "domains and tasks, their dimensions and expert scores",
    "objectives": "the methods and their options",
}

EXAMPLES = """examples:
  cic pretrain --domain walker                          # CIC at laptop scale, into runs/
  cic pretrain --domain quadruped --objective rnd --scale paper --seed 3 --out runs/rnd-3
  cic pretrain --resume runs/rnd-3                      # goes on to the bit where it stopped
  cic finetune runs/rnd-3 --task quadruped-run          # at the scale of the pre-training
  cic finetune --scratch --task walker-walk             # the same budget without pre-training
  cic COMMAND --help                                    # every setting with its meaning"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. 0 is success, 2 the user's mistake, 130 a run that was stopped and saved."""
    args = list(sys.argv[1:] if argv is None else argv)
    if args in (["--version"], ["-V"]):
        print(f"cic {__version__}")
        return 0
    if not args or args[0] in ("-h", "--help", "help"):
        print(_overview())
        return 0
    warnings.showwarning = _show_warning
    try:
        if args[0] not in COMMANDS:
            raise unknown("command", args[0], COMMANDS)
        command: Callable[[list[str]], None] = globals()[f"_{args[0]}"]
        command(args[1:])
    except SystemExit as stop:  # --help of a command
        return int(stop.code or 0)
    except UserError as error:
        print(f"cic: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        hint = "; make room, then continue with --resume" if error.errno == errno.ENOSPC else ""
        print(f"cic: {where}{error.strerror or error}{hint}", file=sys.stderr)
        return 2
    except Interrupted as error:
        print(f"cic: {error}", file=sys.stderr)
        return 130
    except KeyboardInterrupt:
        print("cic: stopped", file=sys.stderr)
        return 130
    return 0


def _overview() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {text}" for name, text in COMMANDS.items()]
    head = "usage: cic COMMAND [settings]\n\nSkills without rewards, and how to use them.\n"
    return "\n".join([head, *lines, "", EXAMPLES])


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"cic: warning: {message}", file=sys.stderr)


# ---- parsing ---------------------------------------------------------------------------------------------------


def _parse(cls: Any, args: list[str], command: str, default: Any = None, description: str | None = None) -> Any:
    import tyro

    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return tyro.cli(
                cls,
                args=args,
                default=default,
                prog=f"cic {command}",
                description=description or COMMANDS[command],
                config=(tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes),
            )
    except SystemExit as stop:
        if not stop.code:  # --help
            raise
        raise UserError(_sentence(said.getvalue(), command)) from None


def _sentence(box: str, command: str) -> str:
    """What the parser says in a box, in one sentence: its first paragraph, and the flag that it suggests."""
    lines = [line.strip("│╭╰╮╯ ") for line in box.splitlines()[1:]]  # below the title; it may draw in ASCII
    text = "\n".join("" if set(line) <= {"─", "-"} else line for line in lines).strip("\n")
    first, *rest = [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]
    near = [paragraph.split()[3] for paragraph in rest if paragraph.startswith("Perhaps you meant:")]
    hint = f"did you mean {near[0]}?" if near else f"see `cic {command} --help`"
    first = re.sub(r"^Error parsing (?!--)\S+: ", "", first).rstrip(".")  # a dataclass's name says nothing here
    return f"{first[:1].lower()}{first[1:]}; {hint}"


def _peek(args: list[str], flag: str) -> str | None:
    """A flag's value before the parser is built: the objective and the scale decide which flags there are."""
    for index, arg in enumerate(args):
        if arg == flag and index + 1 < len(args):
            return args[index + 1]
        if arg.startswith(f"{flag}="):
            return arg.partition("=")[2]
    return None


def _wrap(name: str, config: Any, extra: list[tuple[Any, ...]]) -> type:
    """A dataclass of the config's fields, flat, and of what belongs to the command alone."""
    required = [field for field in extra if len(field) == 2]
    optional = [field for field in extra if len(field) == 3]
    return dataclasses.make_dataclass(name, [*required, ("config", config), *optional])


def _resumed(args: list[str], kind: str) -> bool:
    if (path := _peek(args, "--resume")) is None:
        return False
    from cic.api import resume
    from cic.runs.folder import Run

    if (run := Run(path)).kind != kind:
        raise UserError(f"{path} is a {run.kind} run: continue it with `cic {run.kind} --resume {path}`")
    rest = [arg for arg in args if arg not in ("--resume", path, f"--resume={path}", "--quiet")]
    if rest:
        raise UserError(f"a resumed run keeps its settings; drop {' '.join(rest)}")
    _announce(resume(path, quiet="--quiet" in args))
    return True


def _announce(finished: Any) -> None:
    numbers = {name: value for name, value in finished.result.items() if isinstance(value, int | float)}
    print(f"{finished.path}: " + ", ".join(f"{name} {value:.4g}" for name, value in numbers.items()))


# ---- training --------------------------------------------------------------------------------------------------


def _pretrain(args: list[str]) -> None:
    import tyro

    from cic.api import pretrain
    from cic.learning.learners import get_learner
    from cic.learning.objectives import get_objective
    from cic.training.settings import PretrainConfig, pretrain_defaults

    if _resumed(args, "pretrain"):
        return
    objective = _peek(args, "--objective") or "cic"
    generic: Any = PretrainConfig
    learner = _peek(args, "--learner") or "ddpg"
    scale = _peek(args, "--scale") or "laptop"
    default = pretrain_defaults(tyro.MISSING, objective, scale, _peek(args, "--preset"), learner)
    out = tyro.conf.arg(help="Folder of the run; by default a new one under runs/.")
    again = tyro.conf.arg(help="Continue this run instead; takes no other setting but --quiet.")
    cls = _wrap(
        "Pretrain",
        generic[get_objective(objective).Options, get_learner(learner).Config],
        [
            ("out", Annotated[Path | None, out], None),
            ("resume", Annotated[Path | None, again], None),
            ("quiet", Annotated[bool, tyro.conf.arg(help="Show no progress.")], False),
        ],
    )
    given = _parse(
        cls, args, "pretrain", cls(default), f"{COMMANDS['pretrain']}; the last flags are those of {objective}"
    )
    _announce(pretrain(given.config, out=given.out, quiet=given.quiet))


def _finetune(args: list[str]) -> None:
    import tyro

    from cic.api import finetune, starting_point
    from cic.training.settings import FinetuneSettings

    if _resumed(args, "finetune"):
        return
    first = args[0] if args and not args[0].startswith("-") else None
    default = starting_point(first, tyro.MISSING, _peek(args, "--scale"), _peek(args, "--learner"))
    generic: Any = FinetuneSettings
    cls = _wrap(
        "Finetune",
        generic[type(default.learning)],
        [
            (
                "run",
                Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(help="Folder of the pre-training.")],
                None,
            ),
            ("scratch", Annotated[bool, tyro.conf.arg(help="Learn from nothing, without a pre-training.")], False),
            ("at", Annotated[int | None, tyro.conf.arg(help="Use the weights of this step's milestone.")], None),
            (
                "out",
                Annotated[Path | None, tyro.conf.arg(help="Folder of the run; by default a new one under runs/.")],
                None,
            ),
            ("resume", Annotated[Path | None, tyro.conf.arg(help="Continue this run instead.")], None),
            ("quiet", Annotated[bool, tyro.conf.arg(help="Show no progress.")], False),
        ],
    )
    given = _parse(cls, args, "finetune", cls(default))
    if given.scratch == (given.run is not None):
        raise UserError("give either the folder of a pre-training or --scratch")
    _announce(finetune(given.run, given.config, at=given.at, out=given.out, quiet=given.quiet))


# ---- looking ---------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class EvaluateArgs:
    run: Path
    """Folder of a pre-training or a finetuning."""
    episodes: int = 10
    """Episodes, side by side, under the mean action."""
    skill: tuple[float, ...] | None = None
    """Use this skill; one number stands for all dimensions. By default the run's own, or random ones (zero-shot)."""
    seed: int = 0
    """Of the initial states and the random skills."""
    at: int | None = None
    """Use the weights of this step's milestone."""
    json: bool = False
    """Print JSON instead of a table."""


def _evaluate(args: list[str]) -> None:
    import numpy as np
    import tyro

    from cic.api import evaluate

    given = _parse(tyro.conf.configure(tyro.conf.PositionalRequiredArgs)(EvaluateArgs), args, "evaluate")
    if given.episodes < 1:
        raise UserError(f"episodes must be at least 1, not {given.episodes}")
    skill = None if given.skill is None else np.array(given.skill, np.float32)
    found = evaluate(given.run, episodes=given.episodes, skill=skill, seed=given.seed, at=given.at)
    if given.json:
        print(json.dumps(dataclasses.asdict(found)))
        return
    rows = [
        [task, f"{np.mean(r):.1f}", f"{np.std(r):.1f}", f"{np.min(r):.1f}", f"{np.max(r):.1f}"]
        for task, r in found.returns.items()
    ]
    _table(["task", "mean", "std", "min", "max"], rows)


@dataclasses.dataclass(frozen=True)
class SkillsArgs:
    run: Path
    """Folder of a pre-training or a finetuning."""
    count: int = 11
    """How many skills are shown."""
    choose: Literal["grid", "random"] = "grid"
    """Constant vectors over [0, 1] (continuous skills), or drawn as in pre-training."""
    seed: int = 0
    """Of the initial state, which all skills share, and of the random skills."""
    at: int | None = None
    """Use the weights of this step's milestone."""
    out: Path | None = None
    """Where skills.csv, skills.png and skills.mp4 go; by default the run's pictures/."""
    video: bool = True
    """Also film the skills side by side, where OpenGL is there."""
    compare: int = 24
    """Random skills that act from three starts each, to say how much a skill matters; 0 for none."""


def _skills(args: list[str]) -> None:
    import tyro

    from cic.report.skills import compare, comparison_table, describe

    given = _parse(tyro.conf.configure(tyro.conf.PositionalRequiredArgs)(SkillsArgs), args, "skills")
    if given.count < 1:
        raise UserError(f"count must be at least 1, not {given.count}")
    found = describe(
        given.run,
        count=given.count,
        choose=given.choose,
        seed=given.seed,
        at=given.at,
        out=given.out,
        video=given.video,
    )
    _table(
        found.header, [[f"{cell:.3g}" if isinstance(cell, float) else str(cell) for cell in row] for row in found.rows]
    )
    for path in found.files:
        print(path)
    if given.compare > 1:
        matters = compare(given.run, count=given.compare, seed=given.seed, at=given.at)
        print()
        _table(*comparison_table(matters))
        print(matters.sentence)


def _envs(args: list[str]) -> None:
    from cic import envs

    _no_arguments(args, "envs")
    rows = []
    for name, domain in envs.domains().items():
        for task in domain.tasks:
            expert = domain.experts.get(task)
            rows.append(
                [
                    f"{name}-{task}",
                    str(domain.obs),
                    str(domain.action),
                    str(domain.episode_length),
                    "-" if expert is None else f"{expert:g}",
                ]
            )
    _table(["task", "obs", "action", "steps", "expert"], rows)
    print("A domain alone (walker) is reward-free. gymnasium:ID takes any Gymnasium environment with Box actions.")


def _objectives(args: list[str]) -> None:
    from cic.learning.objectives import objectives

    _no_arguments(args, "objectives")
    rows = []
    for name, cls in objectives():
        options = ", ".join(field.name for field in dataclasses.fields(cls.Options))
        rows.append([name, (cls.__doc__ or "").strip().splitlines()[0], options or "-"])
    _table(["name", "what", "options"], rows)
    print("`cic pretrain --objective NAME --help` explains the options.")


def _report(args: list[str]) -> None:
    import tyro

    from cic.report import ReportOptions, ReportResult, report, watch

    runs = tyro.conf.arg(help="Run folders, or folders of run folders.", metavar="RUNS...")
    cls = _wrap(
        "Report",
        ReportOptions,
        [
            ("runs", Annotated[tuple[Path, ...], tyro.conf.Positional, runs]),
            ("out", Annotated[Path, tyro.conf.arg(help="Folder for report.html, figures and tables.")], Path("report")),
        ],
    )
    given = _parse(cls, args, "report")

    def made(result: ReportResult) -> None:
        for finding in result.findings:
            print(finding)
        for notice in result.notices:
            print(f"cic: note: {notice}", file=sys.stderr)
        print(
            f"{result.page}: {result.runs} runs, {len(result.figures)} figures, {len(result.tables)} tables", flush=True
        )

    if given.config.watch:
        watch(given.runs, given.out, given.config, made)
    else:
        made(report(given.runs, given.out, given.config))


def _compare(args: list[str]) -> None:
    import tyro
    from rich.console import Console

    from cic.report import CompareOptions, compare

    a = tyro.conf.arg(help="The first group: a run folder or a folder of run folders.", metavar="A")
    b = tyro.conf.arg(help="The second group.", metavar="B")
    cls = _wrap(
        "Compare",
        CompareOptions,
        [
            ("a", Annotated[Path, tyro.conf.Positional, a]),
            ("b", Annotated[Path, tyro.conf.Positional, b]),
        ],
    )
    given = _parse(cls, args, "compare")
    Console().print(compare([given.a], [given.b], given.config))


def _no_arguments(args: list[str], command: str) -> None:
    if args in (["--help"], ["-h"]):
        print(f"usage: cic {command}\n\n{COMMANDS[command]}")
        raise SystemExit(0)
    if args:
        raise UserError(f"`cic {command}` takes no arguments, not {' '.join(args)}")


def _table(header: list[str], rows: list[list[str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for column, name in enumerate(header):
        numeric = all(row[column].replace(".", "").lstrip("-").isdigit() or row[column] == "-" for row in rows)
        table.add_column(name, justify="right" if numeric else "left")
    for row in rows:
        table.add_row(*row)
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
