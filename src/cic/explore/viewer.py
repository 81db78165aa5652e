"""One open page with its own environments and its own thread.

Events arrive in viser's threads and are queued; the viewer's thread executes them between two frames. So no locks are
needed, and when the page is closed, the thread ends and closes the environments.
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
from cic.core.formula_reward import FormulaReward
from cic.core.types import Array
from cic.envs.bodies import movable_axes
from cic.explore import clips, explorer_page, skill_input
from cic.explore.agent_pool import AgentPool
from cic.explore.controls import ALONE, Controls
from cic.explore.panel import AgentPanel
from cic.explore.skill_map import SkillMap
from cic.explore.steering import MAX_RECENT

FRAMES_PER_SECOND = 60
UPDATE_SECONDS = 0.25
"""Time between updates of plots and numbers."""
SYNC_SECONDS = 20.0
"""Maximum time that a page may take to process its messages."""
DIRECTIONS = {"−x": (-1, 0, 0), "+x": (1, 0, 0), "−y": (0, -1, 0), "+y": (0, 1, 0), "up": (0, 0, 1)}


class Viewer:
    def __init__(self, client: Any, pool: AgentPool, on_end: Callable[[Viewer], None]) -> None:
        self.client, self.pool, self._on_end = client, pool, on_end
        self.panels: list[AgentPanel] = []
        self.active = 0
        """The panel whose skill the controls change."""
        self.maps: dict[str, SkillMap] = {}
        self.pins: list[Array | None] = [None, None]
        self.recent: list[str] = []
        """The last prompts, newest first."""
        self.paused, self.speed, self.follow, self.restart = False, 1.0, True, True
        self.rate = 0.0
        """Current frames per second."""
        self.frames = 0
        self._scenes = 0
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"viewer-{client.client_id}", daemon=True)

    # ---- called from other threads -----------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread after the current frame, because the page is closed."""
        self._stopped.set()

    def join(self, timeout: float) -> None:
        self._thread.join(timeout)

    def do(self, job: Callable[[], None]) -> None:
        """Run a job in the viewer's thread."""
        self._jobs.put(job)

    # ---- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self.show(self.pool.names[0])
            self._loop()
        except Exception as error:
            if not self._stopped.is_set():
                self._notify(f"the page has stopped: {type(error).__name__}: {error}. Reload it")
                raise
        finally:
            self._close_panels()
            self._on_end(self)

    def _loop(self) -> None:
        last = counted = time.monotonic()
        next_text = last + UPDATE_SECONDS
        while not self._stopped.is_set():
            began = time.monotonic()
            self._run_jobs()
            passed, last = min(began - last, 0.25), began
            if not self.paused:
                self._advance(passed * self.speed)
            self._draw()
            if began >= next_text:
                self.rate = self.frames / max(began - counted, 1e-9)
                counted, self.frames, next_text = began, 0, began + UPDATE_SECONDS
                self.controls.tick()
            self._stopped.wait(max(began + 1 / FRAMES_PER_SECOND - time.monotonic(), 0.001))

    def _run_jobs(self) -> None:
        while not self._jobs.empty():
            try:
                self._jobs.get_nowait()()
            except UserError as error:
                self._notify(str(error))

    def _advance(self, seconds: float) -> None:
        try:
            ended = [panel.advance(seconds) for panel in self.panels]
        except RuntimeError as error:  # unstable physics after a push
            self._notify(f"{error}: the episode restarts")
            ended = [True]
        if any(ended):  # two agents always restart together
            self.reset()

    def _draw(self) -> None:
        with self.client.atomic():
            for panel in self.panels:
                panel.draw(self.follow)
        self.frames += 1

    def _notify(self, text: str) -> None:
        self.client.add_notification("cic", text, color="orange", auto_close_seconds=8.0)

    def _close_panels(self) -> None:
        for panel in self.panels:
            panel.close()
        self.panels = []

    # ---- shown agents ------------------------------------------------------------------------------------------------

    @property
    def panel(self) -> AgentPanel:
        return self.panels[self.active]

    def show(self, name: str) -> None:
        """Show one agent."""
        options, agent = self.pool.options, self.pool.agent(name)
        given = options.skill if name == self.pool.names[0] else None
        skill = agent.first_skill(options.seed) if given is None else given
        panel = AgentPanel(agent, skill, options.seed)
        self._close_panels()
        self.panels, self.active, self.pins = [panel], 0, [None, None]
        self._arrange()

    def compare(self, name: str) -> None:
        """Show a second agent next to the first one, or remove it."""
        before, self.active = self.panels[1:], 0
        if name == ALONE:
            second = []
        else:
            agent = self.pool.agent(name)
            pinned = next((pin for pin in self.pins if pin is not None), None)
            same = agent is self.panels[0].agent
            skill = pinned if same and pinned is not None else agent.first_skill(self.pool.options.seed + 1)
            second = [AgentPanel(agent, skill, self.panels[0].simulation.seed)]
        for panel in before:
            panel.close()
        self.panels = [self.panels[0], *second]
        self._arrange()
        self.reset()

    def _arrange(self) -> None:
        """Create the scene, the camera and the controls for the shown agents."""
        self._sync()
        self.client.scene.reset()
        for panel in self.panels:
            panel.scene = None
        gap = self._gap()
        width = None if len(self.panels) == 1 else 0.95 * float(np.abs(gap).max())
        for side, panel in enumerate(self.panels):
            shift = (side - (len(self.panels) - 1) / 2) * gap
            # a new name each time: a page that removes and adds a node with the same name in one step shows neither
            self._scenes += 1
            panel.add_to_scene(self.client.scene, f"scene{self.client.client_id}-{self._scenes}", shift, width)
        self._aim(float(np.abs(gap).max()) if len(self.panels) > 1 else 0.0)
        self.controls = Controls(self)
        for panel in self.panels:
            name = panel.agent.name
            self.pool.fetch_map(
                name,
                lambda made, name=name: self.do(lambda: self._set_map(name, made)),  # type: ignore[misc]
                lambda text: self.do(lambda: self._notify(text)),
            )

    def control(self, side: int) -> None:
        """Let the controls change this panel."""
        self._sync()
        self.active = side
        self.controls = Controls(self)
        self.controls.show_map()

    def _sync(self) -> None:
        """Wait until the page has processed all messages, because it handles removals before pending changes."""
        if hasattr(self, "controls"):
            with contextlib.suppress(RuntimeError, TimeoutError):  # closed or too slow
                self.client.local_storage.get_item("cic", timeout=SYNC_SECONDS)

    def _gap(self) -> Any:
        """Return the offset between two panels: along y, or along x if the scene is bounded."""
        size = max(panel.extent for panel in self.panels)
        if not all(panel.on_floor for panel in self.panels):
            return np.array([1.25 * size, 0.0, 0.0])
        planar = all("+y" not in self.push_directions(panel) for panel in self.panels)
        return np.array([0.0, 1.1 * size if planar else 3.0 * size, 0.0])

    def _aim(self, room: float) -> None:
        size = max(panel.extent for panel in self.panels)
        camera = self.client.camera
        if all(panel.on_floor for panel in self.panels):
            camera.position = np.array([0.6 * size, -2.4 * size - room, 1.0 * size + 0.5 * room])
            camera.look_at = np.array([0.0, 0.0, 0.4 * size])
        else:
            camera.position = np.array([0.0, -0.8 * size - 0.5 * room, 1.5 * size + 0.5 * room])
            camera.look_at = np.array([0.0, 0.0, 0.0])

    def _set_map(self, name: str, made: SkillMap) -> None:
        self.maps[name] = made
        for panel in self.panels:
            if panel.agent.name == name:
                panel.simulation.metrics = self.pool.live_metrics(name)
        self.controls.show_map()

    # ---- actions -----------------------------------------------------------------------------------------------------

    def reset(self, seed: int | None = None) -> None:
        for panel in self.panels:
            panel.reset(seed)

    def next_start(self) -> None:
        self.reset(self.panels[0].simulation.seed + 1)

    def push_directions(self, panel: AgentPanel | None = None) -> list[str]:
        """Return the directions in which the body can move."""
        env = (panel or self.panel).simulation.env
        if env.model is None:
            return []
        free = movable_axes(env.model)
        return [name for name, way in DIRECTIONS.items() if free[int(np.abs(way).argmax())]]

    def push(self, name: str) -> None:
        self.panel.simulation.push(np.array(DIRECTIONS[name], np.float64))

    def choose(self, skill: Array, *, restart: bool) -> None:
        """Continue with this skill, or restart the episode with it."""
        self.panel.simulation.follow(skill)
        if restart and self.restart:
            self.reset()
        self.controls.show_skill()

    def choose_typed(self, text: str) -> None:
        """Choose the skill in the text field: numbers, a point of the map, or a trial."""
        agent, text = self.panel.agent, text.strip()
        if text.startswith("#") and agent.name in self.maps:
            self.choose(_picked(self.maps[agent.name].skills, text[1:], "point"), restart=True)
        elif text.startswith("trial ") and agent.trials is not None:
            skills = [np.array(trial.skill, np.float32) for trial in agent.trials.trials]
            self.choose(agent.space.check(_picked(skills, text[6:], "trial").tolist()), restart=True)
        elif text:
            self.choose(skill_input.typed(agent.space, text), restart=True)

    def follow_prompt(self, text: str) -> str:
        """Follow the skill that maximises a formula; return how it was found."""
        panel = self.panel
        agent = panel.agent.agent
        found = agent.answer(text)
        panel.prompt = text
        panel.simulation.reward = FormulaReward(text, agent.quantities, agent.spaces.obs)
        self.recent = [text, *(one for one in self.recent if one != text)][:MAX_RECENT]
        self.choose(found.skill, restart=False)
        return found.how

    def offer(self, name: str) -> None:
        """Add a finished finetuning to the agents that can be shown and compared."""
        if name not in self.pool.names:
            self.pool.names.append(name)
        self.control(self.active)
        self._notify(f"{name} can now be chosen under Compare")

    def pin(self, place: int) -> None:
        self.pins[place] = self.panel.simulation.skill.copy()
        self.controls.show_skill()

    def mix(self, share: float) -> None:
        first, second = self.pins
        if first is None or second is None:
            raise UserError("pin two skills first")
        self.choose(skill_input.between(self.panel.agent.space, first, second, share), restart=False)

    def record(self, seconds: float, on_progress: Callable[[float], None]) -> None:
        """Record the next simulated seconds as this page draws them, and send them to it as a file."""
        count = max(round(seconds * clips.FRAMES_PER_SECOND), 1)
        frames = []
        for index in range(count):
            if self._stopped.is_set():
                return
            self._advance(self.speed / clips.FRAMES_PER_SECOND)
            self._draw()
            try:
                frames.append(self.client.get_render(*clips.SIZE, timeout=20.0))
            except (RuntimeError, TimeoutError):
                raise UserError("the browser did not draw a frame: is its window hidden?") from None
            on_progress((index + 1) / count)
        suffix, content = clips.encode(frames)
        name = re.sub(r"[^\w-]+", "-", f"{self.panel.agent.environment}-{self.panel.simulation.seed}")
        self.client.send_file_download(name + suffix, content, save_immediately=True)

    @property
    def command(self) -> str:
        simulation = self.panel.simulation
        return self.panel.agent.command(simulation.skill, simulation.seed)

    @property
    def status(self) -> str:
        agent, simulation = self.panel.agent, self.panel.simulation
        return explorer_page.status_html(agent, simulation.skill, simulation.steps, simulation.returns, self.rate)


def _picked(skills: Any, number: str, what: str) -> Array:
    if not number.strip().isdecimal() or int(number) >= len(skills):
        raise UserError(f"there is no {what} {number.strip()[:20]}: choose 0 to {len(skills) - 1}")
    chosen: Array = skills[int(number)]
    return chosen
