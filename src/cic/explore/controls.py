"""The panels of a page: buttons, sliders, the map, the plots. What they do is the viewer's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from cic.core.errors import UserError
from cic.explore import page, steering
from cic.explore.plots import Plots
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
        self._map: Any = None
        self._sentence: Any = None
        if viewer.lane.subject.space.kind != "none":
            with tabs.add_tab("Skills"):
                self._add_skills()
        with tabs.add_tab("Compare"):
            self._add_comparison()
        if viewer.lane.subject.trials is not None:
            with tabs.add_tab("Trials"):
                self._gui.add_html(page.trials_html(viewer.lane.subject.trials))
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
            self._on(agent, lambda: viewer.show(agent.value))

    def _add_motion(self) -> None:
        viewer, gui = self._viewer, self._gui
        pause = gui.add_checkbox("pause", viewer.paused)
        self._on(pause, lambda: setattr(viewer, "paused", pause.value))
        speed = gui.add_slider(
            "speed", 0.05, 2.0, 0.05, viewer.speed, hint="Of simulated time: 1 is real time, below it slow motion."
        )
        self._on(speed, lambda: setattr(viewer, "speed", speed.value))
        follow = gui.add_checkbox("follow", viewer.follow, hint="The view goes with the body.")
        self._on(follow, lambda: setattr(viewer, "follow", follow.value))
        episode = gui.add_button_group("episode", ("reset", "other start"))
        begin = {"reset": viewer.reset, "other start": viewer.another_start}
        episode.on_click(lambda event: viewer.do(begin[event.target.value]))
        if directions := viewer.directions():
            push = gui.add_button_group("push", tuple(directions), hint="A kick to the body, along these axes.")
            push.on_click(lambda event: viewer.do(lambda: viewer.push(event.target.value)))

    def _add_skills(self) -> None:
        viewer, gui = self._viewer, self._gui
        space = viewer.lane.subject.space
        self._measure = gui.add_dropdown("colour by", ("…",), hint="What the colours of the map say.")
        self._on(self._measure, self.show_map)
        self._map = gui.add_html('<div style="padding:0 0.75em">Letting skills act to draw their map …</div>')
        field = gui.add_text(page.FIELD, "", hint=page.hint(viewer.lane.subject))
        self._on(field, lambda: self._typed(field.value))
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
            self._on(constant, lambda: viewer.choose(steering.constant(space, constant.value), begin=False))
        self._entry = None
        if space.kind != "onehot":
            low, high = steering.entry_range(space)
            self._place = gui.add_slider("dimension", 0, max(space.dim - 1, 1), 1, 0, hint="Which entry is changed.")
            self._entry = gui.add_slider("its value", low, high, 0.01, low, hint="Of that one entry.")
            self._on(self._place, self.show_skill)
            self._on(self._entry, self._change_entry)
        chance = gui.add_button("random skill")
        chance.on_click(lambda _: viewer.do(self._random))
        anew = gui.add_checkbox(
            "start anew",
            viewer.anew,
            hint="A skill from the map, by name or at random begins a new episode from the "
            "same start; sliders never do.",
        )
        self._on(anew, lambda: setattr(viewer, "anew", anew.value))
        pins = gui.add_button_group("pin this as", ("first", "second"), hint="Two skills to go between.")
        pins.on_click(lambda event: viewer.do(lambda: viewer.pin(("first", "second").index(event.target.value))))
        self._mix = gui.add_slider("between", 0.0, 1.0, 0.01, 0.0, disabled=True, hint="From the first to the second.")
        mix = self._mix
        self._on(mix, lambda: viewer.mix(mix.value))
        self._command = gui.add_html("")

    def _add_comparison(self) -> None:
        viewer, gui = self._viewer, self._gui
        other = viewer.lanes[1].subject.name if len(viewer.lanes) > 1 else ALONE
        gui.add_markdown("Two agents, or two skills of one, side by side and in step.")
        choice = gui.add_dropdown("beside", (ALONE, *viewer.gallery.names), initial_value=other)
        self._on(choice, lambda: viewer.compare(choice.value))
        if len(viewer.lanes) > 1:
            sides = ("left", "right")
            side = gui.add_dropdown(
                "controls", sides, initial_value=sides[viewer.active], hint="Whose skill and push the page changes."
            )
            self._on(side, lambda: self._switch(sides.index(side.value)))

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

        button.on_click(lambda _: viewer.do(record))

    # ---- what a hand did ---------------------------------------------------------------------------------------

    def _on(self, handle: Any, job: Callable[[], None]) -> None:
        """Run the job in the viewer's thread when a hand changes an element; what we set ourselves does not count."""

        def heard(event: Any) -> None:
            if event.client is not None:
                self._viewer.do(job)

        handle.on_update(heard)

    def _typed(self, text: str) -> None:
        try:
            self._viewer.choose_typed(text)
            said = ""
        except UserError as error:
            said = page.sentence(str(error))
        if self._sentence is not None:
            self._sentence.content = said

    def _random(self) -> None:
        space = self._viewer.lane.subject.space
        self._viewer.choose(space.sample(1, np.random.default_rng())[0], begin=True)

    def _change_entry(self) -> None:
        assert self._entry is not None
        lane, place = self._viewer.lane, int(self._place.value)
        if place < lane.subject.space.dim:
            changed = steering.with_entry(lane.subject.space, lane.simulation.skill, place, self._entry.value)
            self._viewer.choose(changed, begin=False)

    def _switch(self, side: int) -> None:
        viewer = self._viewer
        viewer.active = side
        viewer.controls = Controls(viewer)
        viewer.controls.show_map()

    # ---- what is shown -----------------------------------------------------------------------------------------

    def tick(self) -> None:
        """A few times a second."""
        viewer = self._viewer
        self._heading.content = page.status(viewer.lane.subject, viewer.heading, viewer.rate)
        self._plots.update()

    def show_map(self) -> None:
        viewer = self._viewer
        found = viewer.maps.get(viewer.lane.subject.name)
        if found is None or self._map is None:
            return
        if self._measure.value not in found.measures:
            self._measure.options = tuple(found.measures)
            self._measure.value = telling(found)
        self._map.content = page.map_html(found, self._measure.value, viewer.lane.simulation.skill)

    def show_skill(self) -> None:
        """Sliders, map and command follow the skill that acts."""
        viewer = self._viewer
        if self._map is None:
            return
        skill, space = viewer.lane.simulation.skill, viewer.lane.subject.space
        if self._constant is not None:
            if space.kind == "onehot":
                self._constant.value = int(skill.argmax())
            elif (skill == skill[0]).all():
                self._constant.value = float(skill[0])
        if self._entry is not None:
            low, high = steering.entry_range(space)
            self._entry.value = float(np.clip(skill[min(int(self._place.value), space.dim - 1)], low, high))
        self._mix.disabled = any(pin is None for pin in viewer.pins)
        self._command.content = page.command_html(viewer.command)
        self.show_map()
