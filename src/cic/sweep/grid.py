"""Plans as grids: methods × domains × seeds × settings, and their finetunings."""

from __future__ import annotations

import dataclasses
import itertools
import json
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cic import envs
from cic.core.errors import UserError
from cic.sweep.plan import Entry, Plan
from cic.training.settings import LoopConfig, PretrainConfig, pretrain_defaults

Settings = dict[str, Any]


@dataclass(frozen=True)
class RunGrid:
    """The values that a plan combines."""

    objectives: tuple[str, ...]
    domains: tuple[str, ...]
    seeds: tuple[int, ...] = (0,)
    scale: str = "laptop"
    tasks: tuple[str, ...] = ()
    """Each pre-training is finetuned to the tasks of its domain; the name of a domain stands for all its tasks."""
    scratch: bool = False
    """Also train each task from scratch."""
    settings: tuple[str, ...] = ()
    """`lr=1e-3,3e-4` for pre-trainings, `finetune.steps=1000` for finetunings."""

    def plan(self) -> Plan:
        """Return one pre-training per combination, with its finetunings."""
        crossed = list(_crossed(self.settings))
        tasks = [task for name in self.tasks for task in tasks_of(name)]
        runs: list[Entry] = []
        for domain, seed, (label, before, after) in itertools.product(self.domains, self.seeds, crossed):
            mine = [task for task in tasks if envs.split_name(task)[0] == domain]
            for objective in self.objectives:
                first = pretraining(f"{objective}-{domain}-s{seed}{label}", domain, objective, seed, self.scale, before)
                runs.append(first)
                runs += [finetuning(first, task, seed, after) for task in mine]
        if self.scratch:
            for task, seed in itertools.product(tasks, self.seeds):
                for label, after in {_label(after): after for _, _, after in crossed}.items():
                    config = {"task": task, "scale": self.scale, "seed": seed, **after}
                    runs.append(Entry(f"scratch-{task}-s{seed}{label}", "finetune", config))
        lost = [task for task in tasks if not self.scratch and envs.split_name(task)[0] not in self.domains]
        if lost:
            raise UserError(f"no pre-training in the plan has the domain of {', '.join(lost)}: add it to `domains`")
        return Plan(tuple(runs))


def pretraining(name: str, domain: str, objective: str, seed: int, scale: str, settings: Settings) -> Entry:
    config = {"domain": domain, "objective": objective, "scale": scale, "seed": seed}
    return Entry(name, "pretrain", config | settings)


def finetuning(before: Entry, task: str, seed: int, settings: Settings) -> Entry:
    """Return a finetuning of a pre-training of the plan."""
    short = envs.split_name(task)[1] or "task"
    return Entry(
        f"{before.name}-{short}{_label(settings)}", "finetune", {"task": task, "seed": seed, **settings}, (before.name,)
    )


def tasks_of(name: str) -> list[str]:
    """Return the task of that name, or all tasks of the domain of that name."""
    domain, task = envs.split_name(name)
    known = envs.domains().get(domain)
    return [f"{domain}-{one}" for one in known.tasks] if known and task is None else [name]


def parse_seeds(text: str) -> tuple[int, ...]:
    """Parse seeds: `0-4,7` → 0, 1, 2, 3, 4, 7."""
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or not (last or first).isdecimal() or (dash and not last):
            raise UserError(f'seeds are numbers and ranges such as 0-4 or 0,3,7, not "{text}"')
        low, high = int(first), int(last or first)
        if high < low or high - low >= 100_000:
            raise UserError(
                f'the seeds "{part}" are not a range: write the smaller number first, at most 100,000 seeds'
            )
        seeds.extend(range(low, high + 1))
    return tuple(dict.fromkeys(seeds))


def parse_setting(text: str) -> tuple[str, list[Any]]:
    """Parse a setting: `lr=1e-3,3e-4` → lr, [0.001, 0.0003]. Values that are not JSON are strings."""
    name, equals, values = text.partition("=")
    if not equals or not name or not values:
        raise UserError(f'a setting is NAME=VALUE[,VALUE…], not "{text}"')
    try:
        return name, list(json.loads(f"[{values}]"))
    except ValueError:
        return name, [_word(value) for value in values.split(",")]


def _word(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _crossed(settings: Sequence[str]) -> Iterable[tuple[str, Settings, Settings]]:
    """Yield each combination: a label of the varied settings, settings of the pre-training, of the finetuning."""
    parsed = dict(parse_setting(text) for text in settings)
    for values in itertools.product(*parsed.values()):
        chosen = dict(zip(parsed, values, strict=True))
        varied = {name: value for name, value in chosen.items() if len(parsed[name]) > 1}
        before = {name.removeprefix("pretrain."): v for name, v in chosen.items() if not name.startswith("finetune.")}
        after = {name.removeprefix("finetune."): v for name, v in chosen.items() if name.startswith("finetune.")}
        yield _label({name: v for name, v in varied.items() if not name.startswith("finetune.")}), before, after


def _label(settings: Settings) -> str:
    return "".join(f"-{name.removeprefix('pretrain.')}={_short(value)}" for name, value in settings.items())


def _short(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def differences(config: LoopConfig[Any], default: LoopConfig[Any]) -> Settings:
    """Return the settings in which two configs differ, flat, as `override` takes them."""
    found: Settings = {}
    for field in dataclasses.fields(config):
        mine, theirs = getattr(config, field.name), getattr(default, field.name)
        if dataclasses.is_dataclass(mine) and type(mine) is type(theirs):
            found |= {
                inner.name: getattr(mine, inner.name)
                for inner in dataclasses.fields(mine)
                if getattr(mine, inner.name) != getattr(theirs, inner.name)
            }
        elif mine != theirs:
            found[field.name] = mine
    return found


def of_config(config: PretrainConfig[Any, Any], seeds: Iterable[int]) -> Plan:
    """Return a plan of one pre-training with several seeds."""
    names = ("domain", "objective", "scale", "preset", "learner", *(("pixels",) if config.pixels else ()))
    main = {name: getattr(config, name) for name in names}
    rest = differences(config, pretrain_defaults(**main))
    return Plan(
        tuple(
            Entry(f"{config.objective}-{config.domain}-s{seed}", "pretrain", main | rest | {"seed": seed})
            for seed in seeds
        )
    )


def finetunings(
    runs: Sequence[Path], task: str, seeds: Iterable[int] | None, settings: Settings, at: int | None
) -> Plan:
    """Return a plan that finetunes runs to a task, or to all tasks of a domain; by default with their own seeds."""
    from cic.runs.folder import Run

    entries = []
    for run in dict.fromkeys(runs):
        opened = Run(run)
        for seed in [opened.config.get("seed", 0)] if seeds is None else seeds:
            for one in tasks_of(task):
                config = {"task": one, **settings, "seed": seed} | ({} if at is None else {"at": at})
                name = f"{run.name}-{one}-s{seed}"
                entries.append(Entry(name, "finetune", config, pretrained=str(opened.path.absolute())))
    return Plan(tuple(entries))


def __getattr__(name: str) -> Any:
    """Keep the old name of `RunGrid` for one release."""
    if name == "Grid":
        warnings.warn("cic.sweep.grid.Grid is now cic.sweep.grid.RunGrid", DeprecationWarning, stacklevel=2)
        return RunGrid
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
