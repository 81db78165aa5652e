"""Pictures of the physics, through `mujoco.Renderer`, and keeping OpenGL out of everything else.

Which OpenGL to use is decided when the first picture is drawn: EGL unless there is a display or `MUJOCO_GL` says
otherwise. Without the libraries only pictures are missing.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from cic.core.errors import UserError

_NO_OPENGL = "rendering needs OpenGL ({error}); on Debian: apt install libegl1 libgl1 (everything else works without)"


class Renderer:
    """Draws one model's copies at one size, from the model's first camera."""

    def __init__(self, model: Any, width: int, height: int) -> None:
        self.size = (width, height)
        model.vis.global_.offwidth = max(model.vis.global_.offwidth, width)
        model.vis.global_.offheight = max(model.vis.global_.offheight, height)
        self._camera = 0 if model.ncam else -1
        try:
            self._renderer = _renderer_class()(model, height, width)
        except Exception as error:  # every OpenGL platform fails with a type of its own
            reason = " ".join(str(error).split()) or type(error).__name__
            raise UserError(_NO_OPENGL.format(error=reason)) from error
        _close_at_exit(self)

    def picture(self, data: Any) -> npt.NDArray[np.uint8]:
        """(height, width, 3)."""
        self._renderer.update_scene(data, camera=self._camera)
        return self._renderer.render()  # type: ignore[no-any-return]

    def close(self) -> None:
        self._renderer.close()

    def __enter__(self) -> Renderer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


_open: weakref.WeakSet[Renderer] = weakref.WeakSet()


def _close_at_exit(renderer: Renderer) -> None:
    """Whatever is open at the end is closed before OpenGL goes; MuJoCo's own clean-up is too late and complains."""
    if not _open:
        atexit.unregister(_close_all)
        atexit.register(_close_all)  # after OpenGL has registered its end, hence called before that
    _open.add(renderer)


def _close_all() -> None:
    for renderer in list(_open):
        renderer.close()


def _renderer_class() -> Any:
    """`mujoco.Renderer` on EGL where nothing else was asked for: MuJoCo chose when it was imported, without knowing."""
    from mujoco.rendering.classic import gl_context, renderer

    if _headless():
        from mujoco.egl import GLContext

        gl_context.GLContext = GLContext
    return renderer.Renderer


def _headless() -> bool:
    return sys.platform == "linux" and not os.environ.get("DISPLAY") and not os.environ.get("MUJOCO_GL")


@contextmanager
def importing_dm_control() -> Iterator[None]:
    """dm_control picks an OpenGL when it is imported, and fails or complains where there is none or no display."""
    if not _headless():
        yield
        return
    os.environ["MUJOCO_GL"] = "egl" if _has_egl() else "disabled"
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
