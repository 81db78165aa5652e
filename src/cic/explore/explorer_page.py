"""The HTML parts of the page: skill map, table of trials, command to copy. Templates escape every value.

A click has to reach the server through an element of viser: it types the name of the clicked item into the text field
`skill`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cic.core.types import Array
from cic.explore.loaded_agent import LoadedAgent, skill_arguments
from cic.explore.skill_map import CLUSTER, SkillMap, best_skills
from cic.runs.contents import Selection

if TYPE_CHECKING:
    from jinja2 import Environment

SKILL_FIELD = "skill"
"""Label of the text field; `type_skill.js` looks for it."""
PROMPT_FIELD = "prompt"
WIDTH, HEIGHT, MARGIN = 320, 240, 14
MAX_TRIALS = 200
_VIRIDIS = np.array([(68, 1, 84), (33, 145, 140), (253, 231, 37)])
CATEGORIES = ("#4e79a7", "#f28e2b", "#e15759", "#59a14f", "#b07aa1", "#edc948", "#76b7b2", "#9c755f")


def map_html(skill_map: SkillMap, measure: str, current: Array | None) -> str:
    """Render one point per skill, coloured by a measure, with a ring around the current skill."""
    values, clusters = skill_map.measures[measure], measure == CLUSTER
    colours = [CATEGORIES[int(value) % len(CATEGORIES)] for value in values] if clusters else gradient(values)
    points = [
        {
            "index": index,
            "x": f"{MARGIN + skill_map.places[index][0] * (WIDTH - 2 * MARGIN):.1f}",
            "y": f"{HEIGHT - MARGIN - skill_map.places[index][1] * (HEIGHT - 2 * MARGIN):.1f}",
            "colour": colours[index],
            "title": f"{skill_map.names[index]}: "
            + (skill_map.groups[int(values[index])].name if clusters else f"{values[index]:.4g}"),
            "current": current is not None and np.array_equal(skill_map.skills[index], current),
        }
        for index in np.argsort(values, kind="stable").tolist()  # the highest value on top
    ]
    return _render(
        "skill_map.html",
        skill_map=skill_map,
        points=points,
        groups=[
            {"index": group.typical, "name": group.name, "size": group.size, "colour": CATEGORIES[place]}
            for place, group in enumerate(skill_map.groups)
        ],
        best=[
            {"index": index, "task": task, "value": f"{skill_map.measures[f'return: {task}'][index]:.3g}"}
            for task, index in best_skills(skill_map).items()
        ],
        colour_bar=[] if clusters else gradient(np.linspace(0, 1, 5)),
        low=values.min(),
        high=values.max(),
        width=WIDTH,
        height=HEIGHT,
    )


def gradient(values: npt.NDArray[np.float64]) -> list[str]:
    """Return colours from violet to yellow with increasing lightness."""
    span = float(np.ptp(values))
    shares = (values - values.min()) / span if span > 0 else np.full(len(values), 0.5)
    channels = [np.interp(shares, [0.0, 0.5, 1.0], channel) for channel in _VIRIDIS.T]
    return ["#" + "".join(f"{round(part):02x}" for part in rgb) for rgb in zip(*channels, strict=True)]


def trials_html(selection: Selection) -> str:
    """Render the skills that the search has tried, best first; a click runs the skill of the trial."""
    known = [index for index, trial in enumerate(selection.trials) if np.isfinite(trial.score)]
    order = sorted(known, key=lambda index: -selection.trials[index].score)[:MAX_TRIALS]
    trials = [
        {
            "index": index,
            "skill": short_skill(selection.trials[index].skill),
            "score": selection.trials[index].score,
            "selected": index == selection.chosen,
        }
        for index in order
    ]
    return _render("trials.html", trials=trials)


def short_skill(skill: tuple[float, ...] | Array) -> str:
    numbers = [float(value) for value in skill]
    if not numbers:
        return "the policy"
    if len(set(numbers)) == 1 and len(numbers) > 1:
        return f"all {numbers[0]:.3g}"
    if sorted(numbers) == [0.0] * (len(numbers) - 1) + [1.0] and len(numbers) > 1:
        return f"one-hot {numbers.index(1.0)}"
    shown = " ".join(f"{value:.2f}" for value in numbers[:4])
    return f"{shown} … ({len(numbers)})" if len(numbers) > 4 else shown


def command_html(command: str) -> str:
    """Render the command with a button that copies it."""
    shown = command if len(command) <= 90 else f"{command[:60]} … {command[-20:]}"
    return _render("command.html", command=command, shown=shown)


def message_html(text: str) -> str:
    """Render an error message below the text field."""
    return _render("message.html", text=text)


def note_html(text: str) -> str:
    """Render a remark below a control."""
    return _render("note.html", text=text)


def choices_html(completions: Sequence[str], examples: Sequence[str], recent: Sequence[str]) -> str:
    """Render texts that a click types into the field for prompts."""
    groups = {"complete": completions, "examples": () if completions else examples, "recent": recent}
    return _render("choices.html", groups=list(groups.items()))


def status_html(agent: LoadedAgent, skill: Array, steps: int, returns: dict[str, float], rate: float) -> str:
    """Render the environment, the current skill and the returns at the top of the page."""
    return _render(
        "status.html",
        environment=agent.environment,
        title=agent.title,
        rate=rate,
        skill="" if agent.space.kind == "none" else f"skill {short_skill(skill)}, ",
        steps=steps,
        returns=", ".join(f"{task} {value:.0f}" for task, value in returns.items()),
    )


def hint(agent: LoadedAgent) -> str:
    """Return the accepted input of the text field."""
    space = agent.space
    if space.kind == "onehot":
        return f"The number of a skill, 0 to {space.dim - 1}."
    example = " ".join(skill_arguments(space, space.sample(1, np.random.default_rng(0))[0])[:2])
    single = "one number for all dimensions, " if space.kind == "box" else ""
    return f"{space.dim} numbers ({example} …), {single}or #7 for a point of the map."


def _render(template: str, **values: Any) -> str:
    return _environment().get_template(template).render(values)


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("cic.explore")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
