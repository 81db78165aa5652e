"""Images of MuJoCo states by `mujoco.Renderer`. Nothing else in cic needs OpenGL.

The first image selects the OpenGL platform, unless `MUJOCO_GL` is set: GLX if there is a display, then EGL, then
OSMesa. Without the libraries only images are unavailable.
"""

from __future__ import annotations

import atexit
import copy
import ctypes
import functools
import importlib
import os
import sys
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt

from cic.core.errors import UserError

Floats = npt.NDArray[np.float64]
_OFF = ("disable", "disabled", "off", "false", "0")
_PALEST, _STRONGEST = 0.12, 0.4  # of the first and the last ghost
_NO_OPENGL = (
    "rendering needs OpenGL ({error}); on Debian or Ubuntu: apt install libegl1 libgl1, or apt install libosmesa6 "
    "(everything else works without)"
)


class Renderer:
    """Draws states of one model in one size, from one camera. It uses its own copy of the model."""

    def __init__(
        self, model: Any, width: int, height: int, camera: str | int | None = None, *, plain: bool = False
    ) -> None:
        self._model = model = copy.copy(model)
        model.vis.global_.offwidth = max(model.vis.global_.offwidth, width)
        model.vis.global_.offheight = max(model.vis.global_.offheight, height)
        _widen_floors(model)
        if plain:
            model.vis.quality.offsamples = 0
        self._camera: int | str = camera if camera is not None else 0 if model.ncam else -1
        self._data = mujoco.MjData(model)
        self._option, self._perturbation = mujoco.MjvOption(), mujoco.MjvPerturb()
        try:
            self._renderer = _renderer_class()(model, height, width)
        except Exception as error:  # every OpenGL platform fails with a type of its own
            raise _no_opengl(error) from error
        if plain:
            for flag in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION):
                self._renderer.scene.flags[flag] = False
        _close_at_exit(self)

    def picture(self, state: Floats, ghosts: Sequence[Floats] = ()) -> npt.NDArray[np.uint8]:
        """An image (height, width, 3) of a state, with ghosts. A state starts with the positions of all joints."""
        self._place(state)
        self._renderer.update_scene(self._data, camera=self._camera)
        for index, ghost in enumerate(ghosts):
            self._add_ghost(ghost, _PALEST + (_STRONGEST - _PALEST) * index / max(len(ghosts) - 1, 1))
        return self._renderer.render()  # type: ignore[no-any-return]

    def _place(self, state: Floats) -> None:
        self._data.qpos[:] = state[: self._model.nq]
        mujoco.mj_kinematics(self._model, self._data)
        mujoco.mj_comPos(self._model, self._data)  # cameras and lights use it
        mujoco.mj_camlight(self._model, self._data)

    def _add_ghost(self, state: Floats, strength: float) -> None:
        """Add the movable bodies of a state, semi-transparent."""
        self._place(state)
        scene, moving = self._renderer.scene, int(mujoco.mjtCatBit.mjCAT_DYNAMIC)
        first = scene.ngeom
        mujoco.mjv_addGeoms(self._model, self._data, self._option, self._perturbation, moving, scene)
        for geom in scene.geoms[first : scene.ngeom]:
            geom.rgba[3] *= strength

    def close(self) -> None:
        self._renderer.close()

    def __enter__(self) -> Renderer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _widen_floors(model: Any) -> None:
    """Extend floors that begin at the start position to the other side, because skills move in both directions."""
    for geom in np.flatnonzero(model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE):
        place, size = abs(model.geom_pos[geom, 0]), model.geom_size[geom, 0]
        if model.geom_bodyid[geom] == 0 and 0 < size - place < 5 < size:
            model.geom_size[geom, 0], model.geom_pos[geom, 0] = size + place, 0.0


_open: weakref.WeakSet[Renderer] = weakref.WeakSet()


def _close_at_exit(renderer: Renderer) -> None:
    """Close open renderers before OpenGL is unloaded; MuJoCo's own clean-up runs too late and prints errors."""
    if not _open:
        atexit.unregister(_close_all)
        atexit.register(_close_all)  # registered after OpenGL's own handler, and so called before it
    _open.add(renderer)


def _close_all() -> None:
    for renderer in list(_open):
        renderer.close()


def require_opengl() -> None:
    """Raise a `UserError` if no OpenGL platform works here."""
    try:
        _renderer_class()
    except Exception as error:
        raise _no_opengl(error) from error


def _no_opengl(error: Exception) -> UserError:
    return UserError(_NO_OPENGL.format(error=" ".join(str(error).split()) or type(error).__name__))


def _renderer_class() -> Any:
    """`mujoco.Renderer` with the first platform that works: MuJoCo has chosen one when it was imported."""
    from mujoco.rendering.classic import gl_context, renderer

    if os.environ.get("MUJOCO_GL") in _OFF:
        raise RuntimeError("MUJOCO_GL turns it off: unset MUJOCO_GL")
    if sys.platform == "linux" and not os.environ.get("MUJOCO_GL"):
        gl_context.GLContext = _working_context()
    return renderer.Renderer


@functools.cache
def _working_context() -> Any:
    """The OpenGL context of the first platform that works here."""
    failures = []
    for platform in ("egl", "osmesa") if _headless() else ("glfw", "egl", "osmesa"):
        try:
            return _context(platform)
        except Exception as error:  # every platform fails with an exception of its own
            failures.append(f"{platform}: {' '.join(str(error).split())[:120] or type(error).__name__}")
            _forget_opengl()
    raise RuntimeError("; ".join(failures))


def _context(platform: str) -> Any:
    """The context class of a platform, after a test."""
    context = importlib.import_module(f"mujoco.{platform}").GLContext
    context(16, 16).free()
    return context


def _forget_opengl() -> None:
    """Let PyOpenGL be imported again: it has loaded the libraries of a platform that does not work."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "OpenGL" or name.startswith("mujoco.egl")]:
        del sys.modules[name]
    os.environ.pop("PYOPENGL_PLATFORM", None)


def _headless() -> bool:
    return sys.platform == "linux" and not os.environ.get("DISPLAY") and not os.environ.get("MUJOCO_GL")


@contextmanager
def importing_dm_control() -> Iterator[None]:
    """Set `MUJOCO_GL` while dm_control is imported, which otherwise fails or warns without a display."""
    if not _headless():
        yield
        return
    os.environ["MUJOCO_GL"] = "egl" if _has_egl() else "disabled"
    try:
        yield
    finally:
        del os.environ["MUJOCO_GL"]


@contextmanager
def gymnasium_rendering() -> Iterator[None]:
    """Set `MUJOCO_GL` to EGL for Gymnasium's MuJoCo environments if there is no display."""
    if os.environ.get("MUJOCO_GL") in _OFF:
        raise UserError(_NO_OPENGL.format(error="MUJOCO_GL turns it off: unset MUJOCO_GL"))
    if not _headless():
        yield
        return
    if not _has_egl():
        raise UserError(_NO_OPENGL.format(error="there is neither a display nor libEGL"))
    os.environ["MUJOCO_GL"] = "egl"
    try:
        yield
    finally:
        del os.environ["MUJOCO_GL"]


def _has_egl() -> bool:
    try:
        ctypes.CDLL("libEGL.so.1")
    except OSError:
        return False
    return True
