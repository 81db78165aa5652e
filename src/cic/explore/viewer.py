"""One open page: its own environments, its own thread, its own part of the scene.

What the page does arrives in viser's threads and is put into a queue; this viewer's thread takes it from there between
two frames. So nothing here needs a lock, and when the page is gone the thread ends and frees the environments.
"""

from __future__ import annotations

import contextlib
import queue
import re
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from cic.core.errors import UserError
from cic.core.types import Array
from cic.explore import clips, explorer_page, steering
from cic.explore.controls import ALONE, Controls
from cic.explore.gallery import Gallery
from cic.explore.panel import Lane
from cic.explore.skill_map import SkillMap

FRAMES_PER_SECOND = 60
TEXT_EVERY = 0.25
"""Seconds between updates of plots and numbers."""
SETTLE = 20.0
"""Seconds that a page may take to catch up."""
DIRECTIONS = {"−x": (-1, 0, 0), "+x": (1, 0, 0), "−y": (0, -1, 0), "+y": (0, 1, 0), "up": (0, 0, 1)}


class Viewer:
    def __init__(self, client: Any, gallery: Gallery, ended: Callable[[Viewer], None]) -> None:
        self.client, self.gallery, self._ended = client, gallery, ended
        self.lanes: list[Lane] = []
        self.active = 0
        """The lane whose skill the page changes."""
        self.maps: dict[str, SkillMap] = {}
        self.pins: list[Array | None] = [None, None]
        self.paused, self.speed, self.follow, self.anew = False, 1.0, True, True
        self.rate = 0.0
        """Frames per second of late."""
        self.frames = 0
        self._stages = 0
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._gone = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"viewer-{client.client_id}", daemon=True)

    # ---- from other threads ------------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def leave(self) -> None:
        """The page is gone. The thread ends within a frame or a step."""
        self._gone.set()

    def join(self, timeout: float) -> None:
        self._thread.join(timeout)

    def do(self, job: Callable[[], None]) -> None:
        """Soon, in this viewer's thread."""
        self._jobs.put(job)

    # ---- the thread --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self.show(self.gallery.names[0])
            self._loop()
        except Exception as error:
            if not self._gone.is_set():
                self._say(f"this page has stopped: {type(error).__name__}: {error}. Reload it")
                raise
        finally:
            self._close_lanes()
            self._ended(self)

    def _loop(self) -> None:
        last = counted = time.monotonic()
        next_text = last + TEXT_EVERY
        while not self._gone.is_set():
            began = time.monotonic()
            self._take_jobs()
            passed, last = min(began - last, 0.25), began
            if not self.paused:
                self._advance(passed * self.speed)
            self._draw()
            if began >= next_text:
                self.rate = self.frames / max(began - counted, 1e-9)
                counted, self.frames, next_text = began, 0, began + TEXT_EVERY
                self.controls.tick()
            self._gone.wait(max(began + 1 / FRAMES_PER_SECOND - time.monotonic(), 0.001))

    def _take_jobs(self) -> None:
        while not self._jobs.empty():
            try:
                self._jobs.get_nowait()()
            except UserError as error:
                self._say(str(error))

    def _advance(self, seconds: float) -> None:
        try:
            ended = [lane.advance(seconds) for lane in self.lanes]
        except RuntimeError as error:  # a push too many
            self._say(f"{error}: it begins anew")
            ended = [True]
        if any(ended):  # side by side is in step: the other one begins anew as well
            self.reset()

    def _draw(self) -> None:
        with self.client.atomic():
            for lane in self.lanes:
                lane.draw(self.follow)
        self.frames += 1

    def _say(self, sentence: str) -> None:
        self.client.add_notification("cic", sentence, color="orange", auto_close_seconds=8.0)

    def _close_lanes(self) -> None:
        for lane in self.lanes:
            lane.close()
        self.lanes = []

    # ---- who is on the stage ------------------------------------------------------------------------------------

    @property
    def lane(self) -> Lane:
        return self.lanes[self.active]

    def show(self, name: str) -> None:
        """One agent, alone."""
        options, subject = self.gallery.options, self.gallery.subject(name)
        first = options.skill if name == self.gallery.names[0] else None
        skill = subject.first_skill(options.seed) if first is None else first
        lane = Lane(subject, skill, options.seed)
        self._close_lanes()
        self.lanes, self.active, self.pins = [lane], 0, [None, None]
        self._arrange()

    def compare(self, name: str) -> None:
        """A second one beside it, or none."""
        before, self.active = self.lanes[1:], 0
        if name == ALONE:
            second = []
        else:
            subject = self.gallery.subject(name)
            pinned = next((pin for pin in self.pins if pin is not None), None)
            same = subject is self.lanes[0].subject
            skill = pinned if same and pinned is not None else subject.first_skill(self.gallery.options.seed + 1)
            second = [Lane(subject, skill, self.lanes[0].simulation.seed)]
        for lane in before:
            lane.close()
        self.lanes = [self.lanes[0], *second]
        self._arrange()
        self.reset()

    def _arrange(self) -> None:
        """The stage, the camera and the controls for who is there now."""
        self._settle()
        self.client.scene.reset()
        for lane in self.lanes:
            lane.stage = None
        gap = self._gap()
        width = None if len(self.lanes) == 1 else 0.95 * float(np.abs(gap).max())
        for side, lane in enumerate(self.lanes):
            shift = (side - (len(self.lanes) - 1) / 2) * gap
            # a name of its own each time: a page that is told in one breath to take a node away and to add one of the
            # same name shows neither
            self._stages += 1
            lane.set_stage(self.client.scene, f"stage{self.client.client_id}-{self._stages}", shift, width)
        self._aim(float(np.abs(gap).max()) if len(self.lanes) > 1 else 0.0)
        self.controls = Controls(self)
        for lane in self.lanes:
            name = lane.subject.name
            self.gallery.fetch_map(
                name,
                lambda made, name=name: self.do(lambda: self._take_map(name, made)),  # type: ignore[misc]
                lambda said: self.do(lambda: self._say(said)),
            )

    def control(self, side: int) -> None:
        """From now on the page changes the skill of this lane."""
        self._settle()
        self.active = side
        self.controls = Controls(self)
        self.controls.show_map()

    def _settle(self) -> None:
        """A page takes away what it is told to before it changes what it was told to change. So before anything goes,
        ask it a question: when it answers, it has done all that it was told."""
        if hasattr(self, "controls"):
            with contextlib.suppress(RuntimeError, TimeoutError):  # gone, or too slow to wait for
                self.client.local_storage.get_item("cic", timeout=SETTLE)

    def _gap(self) -> Any:
        """From the left lane to the right one: along y, behind each other, or along x where there is a fence."""
        size = max(lane.extent for lane in self.lanes)
        if not all(lane.on_floor for lane in self.lanes):
            return np.array([1.25 * size, 0.0, 0.0])
        planar = all("+y" not in self.directions(lane) for lane in self.lanes)
        return np.array([0.0, 1.1 * size if planar else 3.0 * size, 0.0])

    def _aim(self, room: float) -> None:
        size = max(lane.extent for lane in self.lanes)
        camera = self.client.camera
        if all(lane.on_floor for lane in self.lanes):
            camera.position = np.array([0.6 * size, -2.4 * size - room, 1.0 * size + 0.5 * room])
            camera.look_at = np.array([0.0, 0.0, 0.4 * size])
        else:
            camera.position = np.array([0.0, -0.8 * size - 0.5 * room, 1.5 * size + 0.5 * room])
            camera.look_at = np.array([0.0, 0.0, 0.0])

    def _take_map(self, name: str, made: SkillMap) -> None:
        self.maps[name] = made
        for lane in self.lanes:
            if lane.subject.name == name:
                lane.simulation.judge = self.gallery.judge(name)
        self.controls.show_map()

    # ---- what can be done ---------------------------------------------------------------------------------------

    def reset(self, seed: int | None = None) -> None:
        for lane in self.lanes:
            lane.reset(seed)

    def another_start(self) -> None:
        self.reset(self.lanes[0].simulation.seed + 1)

    def directions(self, lane: Lane | None = None) -> list[str]:
        """Those in which a push does anything."""
        env = (lane or self.lane).simulation.env
        from cic.envs.bodies import movable_axes

        free = movable_axes(env.model)
        return [name for name, way in DIRECTIONS.items() if free[int(np.abs(way).argmax())]]

    def push(self, name: str) -> None:
        self.lane.simulation.push(np.array(DIRECTIONS[name], np.float64))

    def choose(self, skill: Array, *, begin: bool) -> None:
        """Let the active lane act by this skill: from here on, or from the start."""
        self.lane.simulation.follow(skill)
        if begin and self.anew:
            self.reset()
        self.controls.show_skill()

    def choose_typed(self, text: str) -> None:
        """What stands in the field: numbers, a point of the map, or a trial."""
        subject, text = self.lane.subject, text.strip()
        if text.startswith("#") and subject.name in self.maps:
            self.choose(_picked(self.maps[subject.name].skills, text[1:], "point"), begin=True)
        elif text.startswith("trial ") and subject.trials is not None:
            skills = [np.array(trial.skill, np.float32) for trial in subject.trials.trials]
            self.choose(subject.space.check(_picked(skills, text[6:], "trial").tolist()), begin=True)
        elif text:
            self.choose(steering.typed(subject.space, text), begin=True)

    def pin(self, place: int) -> None:
        self.pins[place] = self.lane.simulation.skill.copy()
        self.controls.show_skill()

    def mix(self, share: float) -> None:
        first, second = self.pins
        if first is None or second is None:
            raise UserError("pin two skills first")
        self.choose(steering.between(self.lane.subject.space, first, second, share), begin=False)

    def record(self, seconds: float, told: Callable[[float], None]) -> None:
        """So many simulated seconds from here on, as this page draws them, sent to it as a file."""
        count = max(round(seconds * clips.FRAMES_PER_SECOND), 1)
        frames = []
        for index in range(count):
            if self._gone.is_set():
                return
            self._advance(self.speed / clips.FRAMES_PER_SECOND)
            self._draw()
            try:
                frames.append(self.client.get_render(*clips.SIZE, timeout=20.0))
            except (RuntimeError, TimeoutError):
                raise UserError("the browser did not draw: is its window hidden?") from None
            told((index + 1) / count)
        suffix, content = clips.encode(frames)
        name = re.sub(r"[^\w-]+", "-", f"{self.lane.subject.environment}-{self.lane.simulation.seed}")
        self.client.send_file_download(name + suffix, content, save_immediately=True)

    @property
    def command(self) -> str:
        simulation = self.lane.simulation
        return self.lane.subject.command(simulation.skill, simulation.seed)

    @property
    def heading(self) -> str:
        simulation = self.lane.simulation
        return explorer_page.heading(self.lane.subject, simulation.skill, simulation.steps, simulation.returns)


def _picked(skills: Any, number: str, what: str) -> Array:
    if not number.strip().isdecimal() or int(number) >= len(skills):
        raise UserError(f"there is no {what} {number.strip()[:20]}: they go from 0 to {len(skills) - 1}")
    chosen: Array = skills[int(number)]
    return chosen
