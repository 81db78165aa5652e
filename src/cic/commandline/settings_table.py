"""Which flags training has: they depend on the objective, the learner and the scale.

`describe` asks the classes themselves, which takes torch and its two seconds. `--help` and the shell's completion must
answer at once, so a copy of that table is kept in `cic/data/settings.json`; a test compares the two. A method that the
copy does not know (a plug-in, or one of `--import`) is described afresh.

    python -m cic.commandline.settings_table        # after a change of settings: writes the copy anew
"""

from __future__ import annotations

import dataclasses
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from cic.commandline.flags import Flag, flags_of
from cic.commandline.help import Group
from cic.core.errors import UserError, unknown
from cic.core.imports import HINT

Table = dict[str, Any]
_TITLES = {
    "what": "domain run task scratch objective preset skill at critic prior_data scale seed out resume import",
    "how long": (
        "steps warmup num_envs eval_every eval_episodes update_every log_every checkpoint_every milestones replay"
    ),
}
_MACHINE = "device threads compile quiet wandb keep_physics"
_RARE = (
    "critic preset update_every log_every checkpoint_every milestones replay gamma nstep tau tau_alone threads "
    "compile keep_physics eval_every eval_episodes search_value trial_skip"
)


def describe() -> Table:
    """The whole table, from the classes."""
    from cic.learning.learners.base import learners
    from cic.learning.objectives import objectives
    from cic.training.settings import SCALES, FinetuneSettings, PretrainConfig, SearchConfig

    found: Table = _plain(
        {
            "scales": {
                scale: {kind: _flat(values) for kind, values in kinds.items()} for scale, kinds in SCALES.items()
            },
            "pretrain": flags_of(PretrainConfig),
            "finetune": flags_of(FinetuneSettings),
            "selection": flags_of(SearchConfig),
            "learners": {name: flags_of(cls.Config) for name, cls in learners().items()},
            "objectives": {
                name: {
                    "title": cls.title,
                    "flags": flags_of(cls.Options),
                    "scales": cls.scales,
                    "presets": cls.presets,
                    "recommended": cls.recommended,
                }
                for name, cls in objectives()
            },
        }
    )
    return found


def _flat(values: dict[str, Any]) -> dict[str, Any]:
    """One level: what a scale says of the parts beside what it says of the run."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            value = dataclasses.asdict(value)
        flat |= value if isinstance(value, dict) else {name: value}
    return flat


def _plain(content: Any) -> Any:
    """Flags as dicts without what goes without saying, tuples as lists."""
    if isinstance(content, Flag):
        ordinary = {field.name: field.default for field in dataclasses.fields(Flag) if field.name != "default"}
        return _plain({name: value for name, value in vars(content).items() if value != ordinary.get(name, ...)})
    if isinstance(content, dict):
        return {name: _plain(value) for name, value in content.items()}
    return [_plain(item) for item in content] if isinstance(content, list | tuple) else content


def known() -> Table:
    """The kept copy; nothing heavy is imported."""
    return dict(json.loads(_file().read_text(encoding="utf-8")))


def _file() -> Path:
    return Path(str(files("cic").joinpath("data", "settings.json")))


def table_for(objective: str | None, learner: str | None) -> Table:
    """The copy where it knows both, else the table afresh."""
    table = known()
    if (objective or "cic") in table["objectives"] and (learner or "ddpg") in table["learners"]:
        return table
    return describe()


def usual_learner(objective: str, preset: str | None) -> str:
    """The learner that a method's preset recommends."""
    method = table_for(objective, None)["objectives"].get(objective)
    return "ddpg" if method is None else str(_recommended(method, preset).get("learner", "ddpg"))


def _recommended(method: Table, preset: str | None) -> Table:
    found: Table = method["recommended"].get(preset or next(iter(method["presets"])), {})
    return found


def groups(
    table: Table, kind: str, objective: str, learner: str, scale: str, extra: list[Flag], preset: str | None = None
) -> list[Group]:
    """The flags of `cic pretrain` or `finetune` with the defaults of their scale; `extra` are the command's own."""
    for what, name in (("objective", objective), ("learner", learner), ("scale", scale)):
        if name not in table[f"{what}s"]:
            said = unknown(what, name, table[f"{what}s"])
            raise UserError(f"{said} {HINT}") if what == "objective" else said
    method = table["objectives"][objective]
    recommended = _recommended(method, preset) if kind == "pretrain" else {}
    own_learning = recommended.get("learning", {}) if learner == recommended.get("learner", "ddpg") else {}
    defaults = {**own_learning, **table["scales"][scale][kind]}
    defaults |= {"scale": scale, "learner": learner, "objective": objective}
    defaults["preset"] = preset or next(iter(method["presets"]))
    own = {flag.name: flag for flag in [*_flags(table[kind], defaults), *extra]}
    learning = [own.pop("learner"), *_flags(table["learners"][learner], defaults)]
    rare = frozenset(_RARE.split())
    found = [Group(title, _taken(own, names), rare) for title, names in _TITLES.items()]
    if kind == "finetune":
        found.append(Group("the search for a skill", _flags(table["selection"], defaults), rare))
    found.append(Group(f"learner ({learner})", learning, rare))
    if kind == "pretrain":
        chosen = method["scales"].get(scale, {}) | method["presets"].get(defaults["preset"], {})
        found.append(Group(f"method ({method['title']})", _flags(method["flags"], chosen), rare))
    machine = Group("machine", _taken(own, _MACHINE), rare)
    return [*found, machine, Group("more", list(own.values()), frozenset(own))]


def _taken(own: dict[str, Flag], names: str) -> list[Flag]:
    return [own.pop(name) for name in names.split() if name in own]


def every_flag(table: Table, kind: str, extra: list[Flag]) -> list[Flag]:
    """Those of every learner too, for a first look at a command's words."""
    entries = [*table[kind], *table["selection"], *(flag for flags in table["learners"].values() for flag in flags)]
    return [*_flags(entries, {}), *extra]


def _flags(entries: list[dict[str, Any]], defaults: dict[str, Any]) -> list[Flag]:
    found = (Flag(**{**entry, "choices": tuple(entry.get("choices", ()))}) for entry in entries)
    return [dataclasses.replace(flag, default=defaults.get(flag.name, flag.default)) for flag in found]


if __name__ == "__main__":
    _file().write_text(json.dumps(describe(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
