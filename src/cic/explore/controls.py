"""The panels of a page: buttons, sliders, the map, the plots. What they do is the viewer's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from cic.core.errors import UserError
from cic.core.types import Array
from cic.explore import explorer_page, steering
from cic.explore.live_plots import Plots
from cic.explore.skill_map import telling

if TYPE_CHECKING:
    from cic.explore.viewer import Viewer

ALONE = "nobody"
CLIP_SECONDS = 5.0


class Controls:
    """Made anew whenever another agent comes on the stage."""

    def __init__(self, viewer: Viewer) -> None:
        self._viewer, self._gui = viewer, viewer.client.gui
        self._gui.reset()
        self._gui.main_panel.dock_right()
        self._gui.main_panel.set_width(380)
        self._heading = self._gui.add_html("")
        self._add_agent()
        self._add_motion()
        tabs = self._gui.add_tab_group()
        self._stale = False
        self._held: Any = None  # the slider by which the skill was changed last
        self._map: Any = None
        self._sentence: Any = None
        if viewer.lane.subject.space.kind != "none":
            with tabs.add_tab("Skills"):
                self._add_skills()
        with tabs.add_tab("Compare"):
            self._add_comparison()
        if viewer.lane.subject.trials is not None:
            with tabs.add_tab("Trials"):
                self._gui.add_html(explorer_page.trials_html(viewer.lane.subject.trials))
        with tabs.add_tab("Clip"):
            self._add_clip()
        live = self._gui.add_panel()
        with live.add_tab("Live"):
            self._plots = Plots(self._gui, [lane.simulation for lane in viewer.lanes])
        live.dock_left()
        live.set_width(320)
        self.show_skill()
        self.tick()

    # ---- parts -------------------------------------------------------------------------------------------------

    def _add_agent(self) -> None:
        viewer = self._viewer
        names = viewer.gallery.names
        if len(names) > 1:
            chosen = viewer.lanes[0].subject.name
            agent = self._gui.add_dropdown("agent", names, initial_value=chosen, hint="Who is on the stage.")
            self._on(agent, viewer.show)

    def _add_motion(self) -> None:
        viewer, gui = self._viewer, self._gui
        pause = gui.add_checkbox("pause", viewer.paused)
        self._on(pause, lambda ticked: setattr(viewer, "paused", ticked))
        speed = gui.add_slider(
            "speed", 0.05, 2.0, 0.05, viewer.speed, hint="Of simulated time: 1 is real time, below it slow motion."
        )
        self._on(speed, lambda times: setattr(viewer, "speed", times))
        follow = gui.add_checkbox("follow", viewer.follow, hint="The view goes with the body.")
        self._on(follow, lambda ticked: setattr(viewer, "follow", ticked))
        episode = gui.add_button_group("episode", ("reset", "other start"))
        begin = {"reset": viewer.reset, "other start": viewer.another_start}
        self._on(episode, lambda word: begin[word]())
        if directions := viewer.directions():
            push = gui.add_button_group("push", tuple(directions), hint="A kick to the body, along these axes.")
            self._on(push, viewer.push)

    def _add_skills(self) -> None:
        viewer, gui = self._viewer, self._gui
        space = viewer.lane.subject.space
        self._measure = gui.add_dropdown("colour by", ("…",), hint="What the colours of the map say.")
        self._on(self._measure, lambda _: self.show_map())
        self._map = gui.add_html('<div style="padding:0 0.75em">Letting skills act to draw their map …</div>')
        field = gui.add_text(explorer_page.FIELD, "", hint=explorer_page.hint(viewer.lane.subject))
        self._on(field, self._typed)
        self._sentence = gui.add_html("")
        self._constant = None
        if space.kind == "onehot":
            self._constant = gui.add_slider("number", 0, space.dim - 1, 1, 0, hint="Which of the one-hot skills.")
        elif space.kind in ("box", "cube"):
            low, high = steering.entry_range(space)
            self._constant = gui.add_slider(
                "all entries", low, high, 0.01, (low + high) / 2, hint="The same number in every dimension."
            )
        if self._constant is not None:
            constant = self._constant
            self._on(constant, lambda value: self._by(constant, steering.constant(space, value)))
        self._entry = None
        if space.kind != "onehot":
            low, high = steering.entry_range(space)
            self._place = gui.add_slider("dimension", 0, max(space.dim - 1, 1), 1, 0, hint="Which entry is changed.")
            self._entry = gui.add_slider("its value", low, high, 0.01, low, hint="Of that one entry.")
            self._on(self._place, lambda _: self.show_skill())
            self._on(self._entry, self._change_entry)
        chance = gui.add_button("random skill")
        self._on(chance, lambda _: self._random())
        anew = gui.add_checkbox(
            "start anew",
            viewer.anew,
            hint="A skill from the map, by name or at random begins a new episode from the "
            "same start; sliders never do.",
        )
        self._on(anew, lambda ticked: setattr(viewer, "anew", ticked))
        pins = gui.add_button_group("pin this as", ("first", "second"), hint="Two skills to go between.")
        self._on(pins, lambda word: viewer.pin(("first", "second").index(word)))
        self._mix = gui.add_slider("between", 0.0, 1.0, 0.01, 0.0, disabled=True, hint="From the first to the second.")
        self._on(self._mix, viewer.mix)
        self._command = gui.add_html("")

    def _add_comparison(self) -> None:
        viewer, gui = self._viewer, self._gui
        other = viewer.lanes[1].subject.name if len(viewer.lanes) > 1 else ALONE
        gui.add_markdown("Two agents, or two skills of one, side by side and in step.")
        choice = gui.add_dropdown("beside", (ALONE, *viewer.gallery.names), initial_value=other)
        self._on(choice, viewer.compare)
        if len(viewer.lanes) > 1:
            sides = ("left", "right")
            side = gui.add_dropdown(
                "controls", sides, initial_value=sides[viewer.active], hint="Whose skill and push the page changes."
            )
            self._on(side, lambda word: viewer.control(sides.index(word)))

    def _add_clip(self) -> None:
        viewer, gui = self._viewer, self._gui
        gui.add_markdown("Record what this page shows from now on; the browser saves the file.")
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

    # ---- what a hand did ---------------------------------------------------------------------------------------

    def _on(self, handle: Any, job: Callable[[Any], None]) -> None:
        """Run the job in the viewer's thread when a hand changes an element; what we set ourselves does not count.

        The job gets the value as it was then. Callbacks that are coroutines keep their order, others need not.
        """

        async def heard(event: Any) -> None:
            value = event.target.value
            if event.client is not None:
                self._viewer.do(lambda: job(value))

        (handle.on_click if hasattr(handle, "on_click") else handle.on_update)(heard)

    def _by(self, slider: Any, skill: Array) -> None:
        """A slider's skill. What a hand holds is not moved meanwhile."""
        self._held = slider
        self._viewer.choose(skill, begin=False)

    def _typed(self, text: str) -> None:
        try:
            self._viewer.choose_typed(text)
            said = ""
        except UserError as error:
            said = explorer_page.sentence(str(error))
        if self._sentence is not None:
            self._sentence.content = said

    def _random(self) -> None:
        space = self._viewer.lane.subject.space
        self._viewer.choose(space.sample(1, np.random.default_rng())[0], begin=True)

    def _change_entry(self, value: float) -> None:
        lane, place = self._viewer.lane, int(self._place.value)
        if place < lane.subject.space.dim:
            self._by(self._entry, steering.with_entry(lane.subject.space, lane.simulation.skill, place, value))

    # ---- what is shown -----------------------------------------------------------------------------------------

    def tick(self) -> None:
        """A few times a second."""
        viewer = self._viewer
        if self._stale:
            self._refresh()
        self._heading.content = explorer_page.status(viewer.lane.subject, viewer.heading, viewer.rate)
        self._plots.update()

    def show_map(self) -> None:
        viewer = self._viewer
        found = viewer.maps.get(viewer.lane.subject.name)
        if found is None or self._map is None:
            return
        if self._measure.value not in found.measures:
            self._measure.options = tuple(found.measures)
            self._measure.value = telling(found)
        self._map.content = explorer_page.map_html(found, self._measure.value, viewer.lane.simulation.skill)

    def show_skill(self) -> None:
        """Sliders, map and command follow the skill that acts, with the next tick: a slider may change it often."""
        self._stale = True

    def _refresh(self) -> None:
        viewer, held = self._viewer, self._held
        self._stale, self._held = False, None
        if self._map is None:
            return
        skill, space = viewer.lane.simulation.skill, viewer.lane.subject.space
        if self._constant not in (None, held):
            if space.kind == "onehot":
                self._constant.value = int(skill.argmax())
            elif (skill == skill[0]).all():
                self._constant.value = float(skill[0])
        if self._entry not in (None, held):
            low, high = steering.entry_range(space)
            self._entry.value = float(np.clip(skill[min(int(self._place.value), space.dim - 1)], low, high))
        self._mix.disabled = any(pin is None for pin in viewer.pins)
        self._command.content = explorer_page.command_html(viewer.command)
        self.show_map()
