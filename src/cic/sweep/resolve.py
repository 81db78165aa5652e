"""From a plan to run specs: complete, checked configs and the folders that follow from them."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from cic import envs
from cic.api import continuing, starting_point
from cic.core.config import to_dict
from cic.core.errors import UserError
from cic.core.imports import import_first
from cic.sweep.plan import Entry, Plan, Resources
from cic.sweep.specs import RunSpec
from cic.training.settings import LoopConfig, finetune_defaults, override, pretrain_defaults

_DEFAULTS = {
    "pretrain": ("domain", "objective", "scale", "preset", "learner", "pixels"),
    "finetune": ("task", "scale", "learner", "pixels"),
}
"""Settings on which the defaults of the other settings depend."""
_PROCESS_GB = 1.0
_REPLAY_GB = 1e-6  # per step: no built-in domain needs more than 1 kB per step


def resolve(plan: Plan) -> list[RunSpec]:
    """Return the runs of a plan in its order. Imports the user's modules that the plan names."""
    return [spec for spec, _ in _resolve(plan)]


def resolve_configs(plan: Plan) -> dict[str, LoopConfig[Any]]:
    """Return the complete config of each run, by name."""
    return {spec.name: config for spec, config in _resolve(plan)}


def _resolve(plan: Plan) -> list[tuple[RunSpec, LoopConfig[Any]]]:
    import_first(list(plan.imports))
    specs: dict[str, RunSpec] = {}
    configs: dict[str, LoopConfig[Any]] = {}
    folders: dict[str, str] = {}
    for entry in plan.runs:
        try:
            source = _source(entry, specs)
            config, at = _complete(entry, None if source is None else configs[source])
        except UserError as error:
            raise UserError(f'run "{entry.name}" of the plan: {error}') from None
        spec = _spec(entry, config, at, specs, source)
        if spec.folder in folders:
            raise UserError(f'"{folders[spec.folder]}" and "{entry.name}" are the same run: remove one of them')
        folders[spec.folder] = entry.name
        specs[entry.name], configs[entry.name] = spec, config
    return [(spec, configs[name]) for name, spec in specs.items()]


def _source(entry: Entry, specs: dict[str, RunSpec]) -> str | None:
    """Return the name of the pre-training that a finetuning continues."""
    found = [name for name in entry.after if specs[name].kind == "pretrain"] if entry.kind == "finetune" else []
    if len(found) + (entry.pretrained is not None) > 1:
        raise UserError("a finetuning starts from one pre-training, not from several: name one in `after`")
    if entry.kind == "pretrain" and entry.pretrained is not None:
        raise UserError("a pre-training does not start from another run: remove `pretrained`")
    return found[0] if found else None


def _complete(entry: Entry, before: LoopConfig[Any] | None) -> tuple[LoopConfig[Any], int | None]:
    """Return the complete config, and the milestone from which a finetuning starts."""
    given = dict(entry.config)
    main = {name: given.pop(name) for name in _DEFAULTS[entry.kind] if name in given}
    for name, value in main.items():
        kind, wanted = (bool, "true or false") if name == "pixels" else (str, "a string")
        if not isinstance(value, kind):
            raise UserError(f"{name} must be {wanted}, not {value!r}")
    if entry.kind == "pretrain":
        _require(main, "domain")
        domain, task = envs.split_name(main["domain"])
        if task is not None:
            raise UserError(f'pre-training is reward-free: give the domain "{domain}", not the task "{main["domain"]}"')
        return override(pretrain_defaults(**main), given), None
    at = given.pop("at", None)
    if not (at is None or type(at) is int):
        raise UserError(f"at must be a step, not {at!r}")
    _require(main, "task")
    domain, task = envs.split_name(main["task"])
    if task is None and domain in envs.domains():
        raise UserError(f'"{domain}" is a domain without a reward: choose a task, for example "{_any_task(domain)}"')
    if "pixels" in main and (entry.pretrained is not None or before is not None):
        given["pixels"] = main.pop("pixels")  # the defaults follow from the pre-training
    if entry.pretrained is not None:
        start = starting_point(entry.pretrained, main["task"], main.get("scale"), main.get("learner"))
    elif before is not None:
        if domain != getattr(before, "domain", None):
            raise UserError(f'its pre-training is in "{getattr(before, "domain", "?")}", which has no "{main["task"]}"')
        start = continuing(before, **main)
    else:
        start = finetune_defaults(**main)
    return override(start, given), at


def _require(given: dict[str, Any], name: str) -> None:
    if name not in given:
        raise UserError(f"the config lacks {name}: add it")


def _any_task(domain: str) -> str:
    return f"{domain}-{envs.domains()[domain].tasks[0]}"


def _spec(
    entry: Entry, config: LoopConfig[Any], at: int | None, specs: dict[str, RunSpec], source: str | None
) -> RunSpec:
    before = specs[source] if source is not None else None
    origin = before.folder if before else entry.pretrained
    method = _method(config, before, entry.pretrained)
    where = str(getattr(config, "domain" if entry.kind == "pretrain" else "task"))
    identity = {"kind": entry.kind, "config": to_dict(config), "at": at, "source": origin}
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:8]
    readable = re.sub(r"[^\w.-]+", "_", f"{entry.kind}-{method}-{where}-s{config.seed}")
    return RunSpec(
        name=entry.name,
        folder=f"{readable[:80]}-{digest}",
        kind=entry.kind,
        config=entry.config,
        after=tuple(specs[name].folder for name in entry.after),
        source=origin,
        outside=entry.pretrained is not None,
        method=method,
        domain=envs.split_name(where)[0],
        steps=config.steps,
        needs=entry.needs or _resources(config),
    )


def _method(config: LoopConfig[Any], before: RunSpec | None, pretrained: str | None) -> str:
    if before is not None:
        return before.method
    if pretrained is not None:
        from cic.runs.folder import Run

        return str(Run(pretrained).config.get("objective"))
    return str(getattr(config, "objective", "ddpg"))  # a finetuning from scratch


def _resources(config: LoopConfig[Any]) -> Resources:
    return Resources(
        cpus=float(config.threads),
        gpus=1.0 if config.device.startswith("cuda") else 0.0,
        memory=_PROCESS_GB + _REPLAY_GB * min(config.steps, config.replay),
    )
