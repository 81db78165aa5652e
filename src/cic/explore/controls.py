"""The controls of a page: buttons, sliders, the skill map, the plots. The viewer executes their actions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from cic.core.errors import UserError
from cic.core.types import Array
from cic.explore import explorer_page, skill_input
from cic.explore.live_plots import LivePlots
from cic.explore.skill_map import default_measure
from cic.explore.steering import SteeringControls, can_steer
from cic.learning.objectives.steer import Steer

if TYPE_CHECKING:
    from cic.explore.viewer import Viewer

ALONE = "none"
CLIP_SECONDS = 5.0


class Controls:
    """Created again whenever another agent is shown."""

    def __init__(self, viewer: Viewer) -> None:
        self._viewer, self._gui = viewer, viewer.client.gui
        self._gui.reset()
        self._gui.main_panel.dock_right()
        self._gui.main_panel.set_width(380)
        self._status = self._gui.add_html("")
        self._add_agent()
        self._add_motion()
        tabs = self._gui.add_tab_group()
        self._stale = False
        self._held: Any = None  # the slider that changed the skill last
        self._map: Any = None
        self._message: Any = None
        self._steering: SteeringControls | None = None
        steers = can_steer(viewer.panel.agent)
        first = isinstance(viewer.panel.agent.agent.objective, Steer)
        if steers and first:
            with tabs.add_tab("Steer"):
                self._steering = SteeringControls(viewer, self._gui, self._on)
        if viewer.panel.agent.space.kind != "none":
            with tabs.add_tab("Skills"):
                self._add_skills()
        if steers and not first:
            with tabs.add_tab("Prompt"):
                self._steering = SteeringControls(viewer, self._gui, self._on)
        with tabs.add_tab("Compare"):
            self._add_comparison()
        if viewer.panel.agent.trials is not None:
            with tabs.add_tab("Trials"):
                self._gui.add_html(explorer_page.trials_html(viewer.panel.agent.trials))
        with tabs.add_tab("Clip"):
            self._add_clip()
        live = self._gui.add_panel()
        self._plots = LivePlots(self._gui, [panel.simulation for panel in viewer.panels])
        charts = {"Live": self._plots.add_metrics, "Quantities": self._plots.add_quantities}
        for name in ("Quantities", "Live") if first else ("Live", "Quantities") if steers else ("Live",):
            with live.add_tab(name):
                charts[name]()
        live.dock_left()
        live.set_width(320)
        self.show_skill()
        self.tick()

    # ---- parts -------------------------------------------------------------------------------------------------------

    def _add_agent(self) -> None:
        viewer = self._viewer
        if len(viewer.pool.names) > 1:
            shown = viewer.panels[0].agent.name
            agent = self._gui.add_dropdown("agent", viewer.pool.names, initial_value=shown, hint="The agent to show.")
            self._on(agent, viewer.show)

    def _add_motion(self) -> None:
        viewer, gui = self._viewer, self._gui
        pause = gui.add_checkbox("pause", viewer.paused)
        self._on(pause, lambda value: setattr(viewer, "paused", value))
        speed = gui.add_slider("speed", 0.05, 2.0, 0.05, viewer.speed, hint="1 is real time, below 1 is slow motion.")
        self._on(speed, lambda value: setattr(viewer, "speed", value))
        follow = gui.add_checkbox("follow", viewer.follow, hint="The view follows the body.")
        self._on(follow, lambda value: setattr(viewer, "follow", value))
        episode = gui.add_button_group("episode", ("reset", "other start"))
        self._on(episode, lambda name: viewer.reset() if name == "reset" else viewer.next_start())
        if directions := viewer.push_directions():
            push = gui.add_button_group("push", tuple(directions), hint="Push the body along an axis.")
            self._on(push, viewer.push)

    def _add_skills(self) -> None:
        viewer, gui = self._viewer, self._gui
        space = viewer.panel.agent.space
        self._measure = gui.add_dropdown("colour by", ("…",), hint="The measure that the colours of the map show.")
        self._on(self._measure, lambda _: self.show_map())
        self._map = gui.add_html('<div style="padding:0 0.75em">Playing skills to compute the map …</div>')
        field = gui.add_text(explorer_page.SKILL_FIELD, "", hint=explorer_page.hint(viewer.panel.agent))
        self._on(field, self._type_skill)
        self._message = gui.add_html("")
        low, high = skill_input.entry_range(space)
        self._constant = self._entry = None
        if space.kind == "onehot":
            self._constant = gui.add_slider("number", 0, space.dim - 1, 1, 0, hint="The index of the one-hot skill.")
        elif space.kind in ("box", "cube"):
            self._constant = gui.add_slider(
                "all entries", low, high, 0.01, (low + high) / 2, hint="The same value in every dimension."
            )
        if (constant := self._constant) is not None:
            self._on(constant, lambda value: self._slide(constant, skill_input.constant(space, value)))
        if space.kind != "onehot":
            self._place = gui.add_slider("dimension", 0, max(space.dim - 1, 1), 1, 0, hint="The dimension to change.")
            self._entry = gui.add_slider("its value", low, high, 0.01, low, hint="The value of that dimension.")
            self._on(self._place, lambda _: self.show_skill())
            self._on(self._entry, self._change_entry)
        self._on(gui.add_button("random skill"), lambda _: self._random_skill())
        restart = gui.add_checkbox(
            "restart",
            viewer.restart,
            hint="Start a new episode from the same initial state when a skill is chosen on the map, typed or drawn at "
            "random. Sliders never restart the episode.",
        )
        self._on(restart, lambda value: setattr(viewer, "restart", value))
        pins = gui.add_button_group("pin this as", ("first", "second"), hint="Two skills to interpolate.")
        self._on(pins, lambda name: viewer.pin(("first", "second").index(name)))
        self._mix = gui.add_slider("between", 0.0, 1.0, 0.01, 0.0, disabled=True, hint="From the first to the second.")
        self._on(self._mix, viewer.mix)
        self._command = gui.add_html("")

    def _add_comparison(self) -> None:
        viewer, gui = self._viewer, self._gui
        other = viewer.panels[1].agent.name if len(viewer.panels) > 1 else ALONE
        gui.add_markdown("Show two agents, or two skills of one agent, side by side.")
        choice = gui.add_dropdown("beside", (ALONE, *viewer.pool.names), initial_value=other)
        self._on(choice, viewer.compare)
        if len(viewer.panels) > 1:
            sides = ("left", "right")
            side = gui.add_dropdown(
                "controls", sides, initial_value=sides[viewer.active], hint="The agent that the controls change."
            )
            self._on(side, lambda name: viewer.control(sides.index(name)))

    def _add_clip(self) -> None:
        viewer, gui = self._viewer, self._gui
        gui.add_markdown("Record what this page shows; the browser saves the file.")
        seconds = gui.add_slider("seconds", 1.0, 20.0, 1.0, CLIP_SECONDS)
        progress = gui.add_progress_bar(0.0, visible=False)
        button = gui.add_button("record clip")

        def record() -> None:
            button.disabled, progress.visible = True, True
            try:
                viewer.record(seconds.value, lambda share: setattr(progress, "value", 100 * share))
            finally:
                button.disabled, progress.visible = False, False

        self._on(button, lambda _: record())

    # ---- actions -----------------------------------------------------------------------------------------------------

    def _on(self, handle: Any, action: Callable[[Any], None]) -> None:
        """Run the action in the viewer's thread when the user changes an element, but not when the program does.

        The action gets the value at the time of the event. Coroutine callbacks keep their order, others need not.
        """

        async def callback(event: Any) -> None:
            value = event.target.value
            if event.client is not None:
                self._viewer.do(lambda: action(value))

        (handle.on_click if hasattr(handle, "on_click") else handle.on_update)(callback)

    def _slide(self, slider: Any, skill: Array) -> None:
        """Choose the skill of a slider, which must not be moved by the program meanwhile."""
        self._held = slider
        self._viewer.choose(skill, restart=False)

    def _type_skill(self, text: str) -> None:
        message = ""
        try:
            self._viewer.choose_typed(text)
        except UserError as error:
            message = explorer_page.message_html(str(error))
        if self._message is not None:
            self._message.content = message

    def _random_skill(self) -> None:
        space = self._viewer.panel.agent.space
        self._viewer.choose(space.sample(1, np.random.default_rng())[0], restart=True)

    def _change_entry(self, value: float) -> None:
        panel, place = self._viewer.panel, int(self._place.value)
        if place < panel.agent.space.dim:
            self._slide(self._entry, skill_input.with_entry(panel.agent.space, panel.simulation.skill, place, value))

    # ---- display -----------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Update the display; called a few times per second."""
        if self._stale:
            self._refresh()
        self._status.content = self._viewer.status
        self._plots.update()
        if self._steering is not None:
            self._steering.tick()

    def show_map(self) -> None:
        viewer = self._viewer
        found = viewer.maps.get(viewer.panel.agent.name)
        if found is None or self._map is None:
            return
        if self._measure.value not in found.measures:
            self._measure.options = tuple(found.measures)
            self._measure.value = default_measure(found)
        self._map.content = explorer_page.map_html(found, self._measure.value, viewer.panel.simulation.skill)

    def show_skill(self) -> None:
        """Update sliders, map and command with the next tick: a slider may change the skill often."""
        self._stale = True

    def _refresh(self) -> None:
        viewer, held = self._viewer, self._held
        self._stale, self._held = False, None
        if self._map is None:
            return
        skill, space = viewer.panel.simulation.skill, viewer.panel.agent.space
        if self._steering is not None:
            self._steering.show_skill(skill)
        if self._constant not in (None, held):
            if space.kind == "onehot":
                self._constant.value = int(skill.argmax())
            elif (skill == skill[0]).all():
                self._constant.value = float(skill[0])
        if self._entry not in (None, held):
            low, high = skill_input.entry_range(space)
            self._entry.value = float(np.clip(skill[min(int(self._place.value), space.dim - 1)], low, high))
        self._mix.disabled = any(pin is None for pin in viewer.pins)
        self._command.content = explorer_page.command_html(viewer.command)
        self.show_map()
