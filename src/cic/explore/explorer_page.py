"""The parts of the page that are HTML: the map of skills, the table of trials, the command to copy.

A click has to reach the server through one of viser's own elements: it types the name of what was clicked into the
field `skill`, as a hand could do.
"""

from __future__ import annotations

import json
from html import escape

import numpy as np
import numpy.typing as npt

from cic.core.types import Array
from cic.explore.loaded_agent import Subject, spelled
from cic.explore.skill_map import CLUSTER, SkillMap
from cic.runs.contents import Selection

FIELD = "skill"
"""The label of the text field that clicks write to."""
WIDTH, HEIGHT, MARGIN = 320, 240, 14
MOST_TRIALS = 200
_LOW, _MIDDLE, _HIGH = (np.array(colour) for colour in ((68, 1, 84), (33, 145, 140), (253, 231, 37)))
CATEGORIES = ("#4e79a7", "#f28e2b", "#e15759", "#59a14f", "#b07aa1", "#edc948", "#76b7b2", "#9c755f")
_TYPE = """(function(text){
const label=[...document.querySelectorAll('label')].find(l=>l.textContent===%s);
let box=label;while(box&&!box.querySelector('input'))box=box.parentElement;
if(!box)return;const field=box.querySelector('input');
if(field.value===text)text+=' ';
Object.getOwnPropertyDescriptor(HTMLInputElement.prototype,'value').set.call(field,text);
field.dispatchEvent(new Event('input',{bubbles:true}));})(%s)"""


def typing(text: str) -> str:
    """An attribute that types `text` into the field on a click."""
    return f'onclick="{escape(_TYPE % (json.dumps(FIELD), json.dumps(text)), quote=True)}"'


def map_html(skill_map: SkillMap, measure: str, shown: Array | None) -> str:
    """A point per skill, coloured by a measure; a ring around the one that acts."""
    values = skill_map.measures[measure]
    colours = categories(values) if measure == CLUSTER else gradient(values)
    points = []
    for index in np.argsort(values, kind="stable"):  # the highest on top
        x, y = _on_paper(skill_map.places[index])
        acts = shown is not None and np.array_equal(skill_map.skills[index], shown)
        said = f"{skill_map.names[index]}: {values[index]:.4g}" if measure != CLUSTER else skill_map.names[index]
        ring = (
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="10" fill="none" stroke="#e8590c" stroke-width="3"/>' if acts else ""
        )
        points.append(
            f'{ring}<circle class="cic-skill" data-skill="{index}" cx="{x:.1f}" cy="{y:.1f}" r="6" '
            f'fill="{colours[index]}" stroke="#fff" stroke-width="1" style="cursor:pointer" {typing(f"#{index}")}>'
            f"<title>{escape(said)}</title></circle>"
        )
    return (
        f'<div style="padding:0 0.75em"><svg viewBox="0 0 {WIDTH} {HEIGHT}" style="width:100%;border:1px solid #8884;'
        f'border-radius:6px;display:block" role="img" aria-label="map of skills">{"".join(points)}</svg>'
        f"{_legend(values, measure)}"
        f'<div style="font-size:0.75em;opacity:0.75">{_caption(skill_map)}</div></div>'
    )


def _on_paper(place: npt.NDArray[np.float64]) -> tuple[float, float]:
    x, y = place
    return float(MARGIN + x * (WIDTH - 2 * MARGIN)), float(HEIGHT - MARGIN - y * (HEIGHT - 2 * MARGIN))


def _caption(skill_map: SkillMap) -> str:
    return (
        f"{len(skill_map.skills)} skills, {skill_map.steps} steps each from one start. Near is alike: the plane shows "
        f"{skill_map.explained:.0%} of how their behaviour differs. Click one to run it."
    )


def _legend(values: npt.NDArray[np.float64], measure: str) -> str:
    if measure == CLUSTER:
        return ""
    bar = ",".join(gradient(np.linspace(0, 1, 5)))
    style = f"height:8px;border-radius:4px;background:linear-gradient(90deg,{bar});flex:1;margin:0 0.5em"
    return (
        '<div style="display:flex;align-items:center;font-size:0.75em;padding:0.4em 0">'
        f'{values.min():.3g}<div style="{style}"></div>{values.max():.3g}</div>'
    )


def gradient(values: npt.NDArray[np.float64]) -> list[str]:
    """From violet over green to yellow, so that it also reads without colours."""
    span = float(np.ptp(values))
    shares = (values - values.min()) / span if span > 0 else np.full(len(values), 0.5)
    mixes = [
        _LOW + 2 * s * (_MIDDLE - _LOW) if s < 0.5 else _MIDDLE + (2 * s - 1) * (_HIGH - _MIDDLE)
        for s in shares.tolist()
    ]
    return ["#" + "".join(f"{round(float(part)):02x}" for part in mix) for mix in mixes]


def categories(values: npt.NDArray[np.float64]) -> list[str]:
    return [CATEGORIES[int(value) % len(CATEGORIES)] for value in values]


def trials_html(trials: Selection) -> str:
    """What the search for a skill tried, best first; a click runs the trial's skill."""
    known = [index for index, trial in enumerate(trials.trials) if np.isfinite(trial.score)]
    order = sorted(known, key=lambda index: -trials.trials[index].score)[:MOST_TRIALS]
    rows = []
    for index in order:
        trial = trials.trials[index]
        mark, weight = ("chosen", 700) if index == trials.chosen else ("", 400)
        rows.append(
            f'<tr class="cic-trial" data-trial="{index}" style="cursor:pointer;font-weight:{weight}" '
            f"{typing(f'trial {index}')}><td>{index}</td><td>{brief(trial.skill)}</td>"
            f'<td style="text-align:right">{trial.score:.4g}</td><td>{mark}</td></tr>'
        )
    return (
        '<div style="padding:0 0.75em;max-height:22em;overflow:auto;font-size:0.8em">'
        '<table style="width:100%"><tr style="text-align:left"><th>trial</th><th>skill</th>'
        '<th style="text-align:right">return</th><th></th></tr>' + "".join(rows) + "</table></div>"
    )


def brief(skill: tuple[float, ...] | Array) -> str:
    """A skill in few letters."""
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
    """The call, and a button that copies it."""
    copy = (
        "(function(b){const t=b.getAttribute('data-command');const done=()=>{b.textContent='copied';"
        "setTimeout(()=>b.textContent='copy command',1500)};"
        "if(navigator.clipboard)navigator.clipboard.writeText(t).then(done,()=>prompt('Copy:',t));"
        "else prompt('Copy:',t)})(this)"
    )
    shown = command if len(command) <= 90 else f"{command[:60]} … {command[-20:]}"
    return (
        f'<div style="padding:0 0.75em 0.5em"><code class="cic-command" style="font-size:0.75em;'
        f'word-break:break-all">{escape(shown)}</code> '
        f'<button class="cic-copy" data-command="{escape(command, quote=True)}" style="font:inherit;font-size:0.8em;'
        f'cursor:pointer" onclick="{escape(copy, quote=True)}">copy command</button></div>'
    )


def sentence(text: str) -> str:
    """What is wrong with what was typed."""
    return (
        f'<div class="cic-sentence" style="padding:0 0.75em 0.5em;font-size:0.8em;color:#e8590c">{escape(text)}</div>'
    )


def status(subject: Subject, line: str, rate: float) -> str:
    """The top of the page."""
    return (
        f'<div class="cic-status" style="padding:0.25em 0.75em 0.5em;font-size:0.85em">'
        f"<b>{escape(subject.environment)}</b> · {escape(subject.title)} · {rate:.0f} frames/s<br>{line}</div>"
    )


def heading(subject: Subject, skill: Array, steps: int, returns: dict[str, float]) -> str:
    """What acts at this moment, in a line or two."""
    paid = ", ".join(f"{escape(task)} {value:.0f}" for task, value in returns.items())
    acts = "" if subject.space.kind == "none" else f"skill {escape(brief(skill))}, "
    return f"{acts}step {steps}. Returns so far: {paid}."


def hint(subject: Subject) -> str:
    """What can be typed into the field."""
    space = subject.space
    example = " ".join(spelled(space, space.sample(1, np.random.default_rng(0))[0])[:2])
    if space.kind == "onehot":
        return f"A skill's number, 0 to {space.dim - 1}."
    one = "one number for all of them, " if space.kind == "box" else ""
    return f"{space.dim} numbers ({example} …), {one}or #7 for a point of the map."
