"""The flags of the commands that train, which depend on the objective, the learner and the scale or preset.

The settings are dataclasses next to the code that they configure, and importing that code imports torch, which takes
two seconds. `--help` and completion must be fast, so they read a stored table of the flags, `cic/data/settings.json`.
`make generated` writes it, and a test compares it with the dataclasses. A new run, and the help of an objective or
learner that is not in the stored table (a plug-in), read the dataclasses themselves.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from cic.commandline.flags import Flag, flags_of
from cic.commandline.parser import CommandParser, peek, wants_help
from cic.core.errors import UserError, unknown
from cic.core.imports import HINT
from cic.envs.catalogue import DOMAINS

Table = dict[str, Any]
_GROUPS = {
    "run": "data domain runs task scratch objective preset skill at critic prior_data scale seed seeds out resume from",
    "duration": "steps data_steps warmup num_envs eval_every eval_episodes update_every log_every checkpoint_every"
    " milestones",
    "machine": "replay device threads compile quiet wandb keep_physics",
}
_RARE = (
    "critic preset update_every log_every checkpoint_every milestones replay gamma nstep tau tau_alone threads compile"
    " keep_physics eval_every eval_episodes search_value trial_skip"
)


def describe() -> Table:
    """Make the table from the dataclasses."""
    from cic.learning.learners.base import learners
    from cic.learning.objectives import objectives
    from cic.training.offline_settings import LEARNERS, NOT_SETTINGS, PRESETS, OfflineConfig
    from cic.training.settings import SCALES, FinetuneSettings, PretrainConfig, SearchConfig

    table = {
        "scales": SCALES,
        "pretrain": flags_of(PretrainConfig),
        "finetune": flags_of(FinetuneSettings),
        "offline": {
            "flags": [flag for flag in flags_of(OfflineConfig) if flag.name not in ("data", *NOT_SETTINGS)],
            "presets": PRESETS,
            "learners": {name: flags_of(cls.Config) for name, cls in learners(offline=True).items()},
            "learner_settings": LEARNERS,
            "objectives": [name for name, cls in objectives() if cls.redraws_skills],
        },
        "search": [field.name for field in dataclasses.fields(SearchConfig)],
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
    plain: Table = json.loads(json.dumps(table, default=_plain))
    return plain


def _plain(value: Any) -> dict[str, Any]:
    """Turn a dataclass into a dict; empty fields of a flag are left out."""
    fields = dataclasses.asdict(value)
    return {name: item for name, item in fields.items() if item or name == "default" or not isinstance(value, Flag)}


def stored() -> Table:
    """Read the stored table."""
    table: Table = json.loads(_file().read_text(encoding="utf-8"))
    return table


def _file() -> Path:
    return Path(str(files("cic").joinpath("data", "settings.json")))


def add_settings(parser: CommandParser, kind: str, words: Sequence[str], own: Sequence[Flag]) -> None:
    """Add the settings of a run in groups, with the defaults of the scale, the preset and the learner.

    Args:
        parser: Receives the flags.
        kind: "pretrain" or "finetune".
        words: The words after the command.
        own: Flags of the command that are no settings of the run.
    """
    chosen = peek(words, *(("objective", "preset") if kind == "pretrain" else ()), "learner", "scale")
    table = stored() if wants_help(words) or peek(words, "resume") else describe()
    if any(chosen[name] not in table[f"{name}s"] for name in ("objective", "learner") if name in chosen):
        table = describe()  # a plug-in
    defaults = _defaults(table, kind, chosen)
    method, learner = table["objectives"][defaults["objective"]], defaults["learner"]
    flags = {flag.name: flag for flag in [*_flags(table[kind], defaults), *own]}
    learning = [flags.pop("learner"), *_flags(table["learners"][learner], defaults)]
    groups = {title: [flags.pop(name) for name in names.split() if name in flags] for title, names in _GROUPS.items()}
    if kind == "pretrain":
        groups[f"method ({method['title']})"] = _flags(method["flags"], defaults)
    else:
        groups["skill search"] = [flags.pop(name) for name in table["search"]]
    groups[f"learner ({learner})"] = learning
    for title, members in groups.items():
        parser.add_flags(title, members, _RARE.split())
    parser.add_flags("more", flags.values(), rare=list(flags))
    if kind == "finetune" or ("learner" not in chosen and _is_foreign(peek(words, "domain").get("domain", ""))):
        # The learner depends on the pre-training, or on the actions of an environment that is not made yet.
        others = [flag for entries in table["learners"].values() for flag in _flags(entries, {})]
        parser.add_flags("other learners", others, hidden=True)


def add_offline_settings(parser: CommandParser, words: Sequence[str], own: Sequence[Flag]) -> None:
    """Add the settings of offline training in groups, with the defaults of the preset and the learner."""
    table = stored() if wants_help(words) or peek(words, "resume") else describe()
    offline, chosen = table["offline"], {"preset": "laptop"} | peek(words, "objective", "learner", "preset")
    method = chosen.get("objective") if chosen.get("objective") in offline["objectives"] else None
    learners = table["learners"] | offline["learners"]
    _check("preset", chosen["preset"], offline["presets"])
    chosen.setdefault("learner", "ddpg" if method else "td3")
    _check("learner", chosen["learner"], learners)
    defaults: dict[str, Any] = {}
    for name, value in offline["presets"][chosen["preset"]].items():
        defaults |= value if isinstance(value, dict) else {name: value}
    defaults |= offline["learner_settings"].get(chosen["preset"], {}).get(chosen["learner"], {}) | chosen
    flags = {flag.name: flag for flag in [*_flags(offline["flags"], defaults), *own]}
    learning = [flags.pop("learner"), *_flags(learners[chosen["learner"]], defaults)]
    groups = {title: [flags.pop(name) for name in names.split() if name in flags] for title, names in _GROUPS.items()}
    if method:
        about = table["objectives"][method]
        groups[f"method ({about['title']})"] = _flags(about["flags"], about["scales"].get(chosen["preset"], {}))
    groups[f"learner ({chosen['learner']})"] = learning
    for title, members in groups.items():
        parser.add_flags(title, members, _RARE.replace("preset", "").split())
    parser.add_flags("more", flags.values(), rare=list(flags))


def _defaults(table: Table, kind: str, chosen: dict[str, str]) -> dict[str, Any]:
    """Return the choice and the defaults that differ from those of the dataclasses."""
    chosen = {"objective": "cic", "scale": "laptop"} | chosen
    _check("objective", chosen["objective"], table["objectives"], f" {HINT}")
    method = table["objectives"][chosen["objective"]]
    chosen.setdefault("preset", next(iter(method["presets"])))
    _check(f"preset of {chosen['objective']}", chosen["preset"], method["presets"])
    recommended = method["recommended"].get(chosen["preset"], {}) if kind == "pretrain" else {}
    usual = recommended.get("learner", "ddpg")
    chosen.setdefault("learner", usual)
    _check("learner", chosen["learner"], table["learners"])
    _check("scale", chosen["scale"], table["scales"])
    if chosen["learner"] != usual:
        recommended = {}
    defaults = dict(recommended.get("learning", {}))
    for name, value in table["scales"][chosen["scale"]][kind].items():
        defaults |= value if isinstance(value, dict) else {name: value}
    if chosen["scale"] == "paper":
        defaults |= recommended.get("run", {})
    options = method["scales"].get(chosen["scale"], {}) | method["presets"][chosen["preset"]]
    return defaults | (options if kind == "pretrain" else {}) | chosen


def _is_foreign(domain: str) -> bool:
    return bool(domain) and domain not in DOMAINS


def _check(kind: str, name: str, known: Table, hint: str = "") -> None:
    if name not in known:
        raise UserError(f"{unknown(kind, name, known)}{hint}")


def _flags(entries: list[dict[str, Any]], defaults: dict[str, Any]) -> list[Flag]:
    found = (Flag(**{**entry, "choices": tuple(entry.get("choices", ()))}) for entry in entries)
    return [dataclasses.replace(flag, default=defaults.get(flag.name, flag.default)) for flag in found]


if __name__ == "__main__":
    _file().write_text(json.dumps(describe(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
