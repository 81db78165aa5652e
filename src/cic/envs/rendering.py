"""Pictures of the physics, through `mujoco.Renderer`. Nothing else needs OpenGL; this is imported on first use."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt

from cic.errors import UserError

_NO_OPENGL = (
    "rendering needs OpenGL ({error}); on Debian: apt install libegl1 libgl1, then set MUJOCO_GL=egl "
    "(training and evaluation work without)"
)


class Renderer:
    """Draws one model's copies at one size, from the model's first camera."""

    def __init__(self, model: Any, width: int, height: int) -> None:
        if not os.environ.get("DISPLAY"):
            os.environ.setdefault("MUJOCO_GL", "egl")
        import mujoco

        self.size = (width, height)
        model.vis.global_.offwidth = max(model.vis.global_.offwidth, width)
        model.vis.global_.offheight = max(model.vis.global_.offheight, height)
        self._camera = 0 if model.ncam else -1
        try:
            self._renderer = mujoco.Renderer(model, height, width)
        except Exception as error:  # each OpenGL platform fails with a type of its own
            raise UserError(_NO_OPENGL.format(error=" ".join(str(error).split()) or type(error).__name__)) from error

    def picture(self, data: Any) -> npt.NDArray[np.uint8]:
        """(height, width, 3)."""
        self._renderer.update_scene(data, camera=self._camera)
        return self._renderer.render()  # type: ignore[no-any-return]

    def close(self) -> None:
        self._renderer.close()
