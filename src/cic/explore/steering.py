"""The tab that steers an agent: a slider per quantity, named behaviours and a field for prompts."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from cic import envs
from cic.core.errors import UserError
from cic.core.expressions import ARGUMENTS
from cic.core.types import Array
from cic.explore import explorer_page
from cic.explore.background_finetuning import BackgroundFinetuning
from cic.learning.objectives.steer import Steer

if TYPE_CHECKING:
    from cic.explore.loaded_agent import LoadedAgent
    from cic.explore.viewer import Viewer

MAX_SLIDERS = 12
MAX_RECENT = 6
_WORD = re.compile(r"[A-Za-z_]\w*$")


def can_steer(agent: LoadedAgent) -> bool:
    """Whether the agent has skills and named quantities."""
    return agent.space.kind != "none" and bool(agent.agent.quantities)


def behaviours(agent: LoadedAgent) -> dict[str, str]:
    """The named behaviours of the agent's domain, as formulas."""
    known = envs.domains().get(envs.domain_of(agent.environment))
    return dict(known.behaviours) if known is not None else {}


def completions(text: str, names: list[str]) -> list[str]:
    """The text with its last word completed to each name that starts with it."""
    found = _WORD.search(text)
    if found is None:
        return []
    word = found.group()
    return [text[: found.start()] + name for name in names if name.startswith(word) and name != word]


class SteeringControls:
    """Created again whenever another agent is shown."""

    def __init__(self, viewer: Viewer, gui: Any, on: Callable[[Any, Callable[[Any], None]], None]) -> None:
        self._viewer, self._gui = viewer, gui
        agent = viewer.panel.agent
        self._names = [quantity.name for quantity in agent.agent.quantities]
        self._sliders: list[Any] = []
        self._slid: Array | None = None  # the skill that the sliders chose
        if isinstance(agent.agent.objective, Steer) and len(self._names) <= MAX_SLIDERS:
            self._add_sliders(agent, on)
        if named := behaviours(agent):
            buttons = gui.add_button_group("behaviour", tuple(named), hint="Common behaviours, as prompts.")
            on(buttons, lambda name: self.type(named[name]))
        self._field = gui.add_text(
            explorer_page.PROMPT_FIELD, viewer.panel.prompt, hint="A reward, such as speed * upright, to maximise."
        )
        on(self._field, self._typed)
        self._message = gui.add_html("")
        self._choices = gui.add_html("")
        self._add_finetuning(on)
        self._show_choices("")

    def _add_sliders(self, agent: LoadedAgent, on: Callable[[Any, Callable[[Any], None]], None]) -> None:
        for place, quantity in enumerate(agent.agent.quantities):
            hint = f"How much the skill rewards {quantity.name}: 1 as much as possible, −1 as little as possible."
            slider = self._gui.add_slider(quantity.label, -1.0, 1.0, 0.01, 0.0, hint=hint)
            on(slider, partial(self._slide, place))
            self._sliders.append(slider)

    def _add_finetuning(self, on: Callable[[Any, Callable[[Any], None]], None]) -> None:
        steps = self._viewer.pool.options.finetune_steps
        self._tuning: BackgroundFinetuning | None = None
        if not steps:
            return
        self._button = self._gui.add_button(
            "finetune on this prompt", hint=f"Train on the prompted reward for {steps:,} steps, in the background."
        )
        self._progress = self._gui.add_progress_bar(0.0, visible=False)
        self._outcome = self._gui.add_html("")
        on(self._button, lambda _: self._finetune())

    # ---- actions -----------------------------------------------------------------------------------------------------

    def _slide(self, place: int, value: float) -> None:
        weights = np.array([slider.value for slider in self._sliders], np.float64)
        weights[place] = value
        length = np.linalg.norm(weights)
        if length < 1e-3:
            return
        self._slid = (self._viewer.panel.agent.space.radius * weights / length).astype(np.float32)
        self._viewer.choose(self._slid, restart=False)

    def type(self, text: str) -> None:
        """Enter a prompt in the field, and follow it."""
        self._field.value = text
        self._typed(text)

    def _typed(self, text: str) -> None:
        text = text.strip()
        message = ""
        if text:
            try:
                how = self._viewer.follow_prompt(text)
                message = explorer_page.note_html(f"following this prompt; skill found by: {how}")
            except UserError as error:
                message = explorer_page.message_html(str(error))
        self._message.content = message
        self._show_choices(text)

    def _show_choices(self, text: str) -> None:
        names = [*self._names, *(f"{name}(" for name in ARGUMENTS)]
        examples = list(behaviours(self._viewer.panel.agent).values())[:3] or self._names[:3]
        self._choices.content = explorer_page.choices_html(completions(text, names), examples, self._viewer.recent)

    def _finetune(self) -> None:
        panel = self._viewer.panel
        if not panel.prompt:
            raise UserError("type a prompt first")
        self._tuning = self._viewer.pool.finetune(panel.agent, panel.prompt, panel.simulation.skill)
        self._button.disabled, self._progress.visible = True, True
        self._outcome.content = explorer_page.note_html(f"training in {self._tuning.out}")

    # ---- display -----------------------------------------------------------------------------------------------------

    def show_skill(self, skill: Array) -> None:
        """Move the sliders to a skill that was chosen elsewhere."""
        if self._slid is not None and np.array_equal(skill, self._slid):
            return
        for slider, value in zip(self._sliders, skill, strict=False):
            slider.value = float(np.clip(value, -1.0, 1.0))

    def tick(self) -> None:
        """Show the progress of a finetuning; called a few times per second."""
        if self._tuning is None:
            return
        share, problem = self._tuning.progress()
        self._progress.value = 100 * share
        if problem is None and share < 1:
            return
        out, self._tuning = self._tuning.out, None
        self._button.disabled, self._progress.visible = False, False
        if problem is None:
            self._outcome.content = explorer_page.note_html(f"finished: {out}")
            self._viewer.offer(str(out))
        else:
            self._outcome.content = explorer_page.message_html(problem)
