"""Write docs/reference/api.md from the docstrings: `python docs/make_reference.py`. A test compares the two."""

from __future__ import annotations

import inspect
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import cic
from cic import api, export
from cic.commandline.commands import COMMANDS
from cic.commandline.flags import attribute_docs
from cic.core.types import Batch, Needs
from cic.envs.base import VectorEnv
from cic.learning.agent import Agent
from cic.training.settings import FinetuneSettings, LoopConfig, PretrainConfig

PAGE = Path(__file__).parent / "reference" / "api.md"


def page() -> str:
    """The whole page."""
    parts = [
        "# API reference",
        "Made from the docstrings by `python docs/make_reference.py`.",
        "## Verbs",
        *(
            _function(f"cic.{verb}", getattr(api, verb))
            for verb in ("pretrain", "finetune", "evaluate", "load", "resume")
        ),
        _class("cic.api.Finished", api.Finished),
        _class("cic.api.Evaluation", api.Evaluation),
        "## Agent",
        _class("Agent", Agent, ["act", "predict"]),
        "## Your own methods and environments",
        _function("cic.register", cic.register),
        _class("cic.Objective", cic.Objective, _public(cic.Objective)),
        _class("cic.SkillSpace", cic.SkillSpace, ["sample", "check", "draw"]),
        _class("Batch", Batch),
        _class("Needs", Needs),
        "## Environments",
        *(_function(f"cic.envs.{name}", getattr(cic.envs, name)) for name in ("make", "register_env", "domains")),
        _class("VectorEnv", VectorEnv, ["reset", "step", "state", "restore", "physics", "poses", "push", "render"]),
        "## Export",
        *(_function(f"cic.export.{name}", getattr(export, name)) for name in export.__all__ if name[0].islower()),
        _class("cic.export.Episode", export.Episode),
        "## Settings",
        "Of `cic.pretrain(…)` and `cic.finetune(…)` by name, and of the command line with dashes.",
        *(_settings(cls) for cls in (LoopConfig, PretrainConfig, FinetuneSettings)),
        "## Commands",
        "\n".join(["| command | |", "|---|---|", *(f"| `cic {name}` | {about} |" for name, about in COMMANDS.items())]),
    ]
    return "\n\n".join(parts) + "\n"


def _public(cls: type) -> list[str]:
    """Its own methods and properties, in the order of the source."""
    return [name for name, member in vars(cls).items() if not name.startswith("_") and _callable(member).__doc__]


def _callable(member: Any) -> Any:
    return member.fget if isinstance(member, property) else member


def _function(name: str, function: Any, level: str = "###") -> str:
    return f"{level} `{name}`\n\n```text\n{_signature(name, function)}\n```\n\n{_text(function)}"


def _signature(name: str, function: Any) -> str:
    signature = inspect.signature(function)
    arguments = [_argument(parameter) for parameter in signature.parameters.values()]
    keyword = [i for i, p in enumerate(signature.parameters.values()) if p.kind is p.KEYWORD_ONLY]
    if keyword:
        arguments.insert(keyword[0], "*")
    returns = signature.return_annotation
    short = f"{name}({', '.join(arguments)}) -> {returns}"
    if len(short) <= 100:
        return short
    return "\n".join([f"{name}(", *(f"    {argument}," for argument in arguments), f") -> {returns}"])


def _argument(parameter: inspect.Parameter) -> str:
    star = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    kind = "" if parameter.annotation is parameter.empty else f": {parameter.annotation}"
    default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
    return f"{star}{parameter.name}{kind}{default}"


def _class(name: str, cls: Any, members: list[str] | None = None) -> str:
    parts = [f"### `{name}`", _text(cls)]
    if is_dataclass(cls) and (texts := attribute_docs(cls)):
        parts.append(
            "\n".join(f"- `{field.name}`: {texts[field.name]}" for field in fields(cls) if field.name in texts)
        )
    for member in members or []:
        found = inspect.getattr_static(cls, member)
        if isinstance(found, property):
            parts.append(f"#### `{member}`\n\n{_text(found.fget)}")
        elif callable(found):
            parts.append(_function(member, found, "####"))
    return "\n\n".join(parts)


def _text(thing: Any) -> str:
    return inspect.cleandoc(thing.__doc__ or "")


def _settings(cls: Any) -> str:
    own = [field for field in fields(cls) if field.name in inspect.get_annotations(cls)]
    texts = attribute_docs(cls)
    rows = [f"| `{field.name}` | {texts.get(field.name, '').replace('|', '/')} |" for field in own]
    return "\n".join([f"### `{cls.__name__}`\n\n{_text(cls)}\n", "| setting | |", "|---|---|", *rows])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
