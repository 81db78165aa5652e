"""Light imports, registration in any order, and life without OpenGL. Each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import cic.envs
from cic.core.errors import UserError
from cic.envs import rendering


def run(code: str, **environment: str) -> str:
    kept = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "MUJOCO_GL", "PYOPENGL_PLATFORM")}
    command = [sys.executable, "-W", "error::UserWarning", "-c", code]
    done = subprocess.run(command, env=kept | environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_the_import_hook_leaves_gymnasium_as_it_is() -> None:
    code = """
import cic, inspect, importlib.resources, gymnasium
print("import" in inspect.getsource(gymnasium), type(gymnasium.__spec__.loader).__name__)
print(importlib.resources.files("gymnasium").joinpath("py.typed").is_file())
"""
    assert run(code).split() == ["True", "SourceFileLoader", "True"]


def test_importing_is_light() -> None:
    code = """
import sys, cic, cic.envs
assert cic.envs.domains()["walker"].experts["run"] == 796
print(sorted({"numpy", "gymnasium", "mujoco", "dm_control", "torch"} & set(sys.modules)))
"""
    assert run(code).strip() == "[]"


def test_an_opengl_platform_that_does_not_exist_is_one_message() -> None:
    code = """
import cic.envs
try:
    cic.envs.make("point_mass")
except cic.UserError as error:
    print(error)
"""
    message = run(code, MUJOCO_GL="nonsense")
    assert message.startswith("MuJoCo cannot be imported with MUJOCO_GL=nonsense (RuntimeError: ")
    assert "unset MUJOCO_GL" in message


def test_running_the_suite_imports_no_dm_control() -> None:
    code = """
import sys, cic.envs
for domain in ("walker", "quadruped", "hopper", "point_mass"):
    env = cic.envs.make(domain)
    env.reset()
    assert env.spaces.obs
print(sorted({"dm_control", "OpenGL", "torch"} & set(sys.modules)))
"""
    assert run(code).strip() == "[]"


@pytest.mark.parametrize(
    ("imports", "prefix"),
    [
        ("import gymnasium, cic", ""),
        ("import cic, gymnasium", ""),
        ("import cic.envs, gymnasium", ""),
        ("import gymnasium", "cic:"),
        ("import cic.envs.gymnasium_ids, gymnasium", "cic.envs.gymnasium_ids:"),
    ],
)
def test_gymnasium_knows_the_environments(imports: str, prefix: str) -> None:
    code = f"""
import sys
{imports}
env = gymnasium.make("{prefix}cic/point_mass-easy-v0")
print(env.reset(seed=1)[0].shape, env.spec.max_episode_steps)
many = gymnasium.make_vec("{prefix}cic/point_mass-easy-v0", num_envs=3)
print(many.reset()[0].shape)
print([finder for finder in sys.meta_path if "cic" in type(finder).__module__])
"""
    assert run(code).split("\n")[:3] == ["(4,) 1000", "(3, 4)", "[]"]


NO_OPENGL = """
import sys
for module in ("OpenGL", "OpenGL.GL", "OpenGL.EGL", "glfw"):
    sys.modules[module] = None  # as where the libraries are missing
import ctypes
load = ctypes.CDLL
def missing(name, *args, **kwargs):
    if name and "EGL" in str(name):
        raise OSError("libEGL.so.1: cannot open shared object file")
    return load(name, *args, **kwargs)
ctypes.CDLL = missing
import numpy as np, cic.envs
for name in ("walker", "jaco"):
    env = cic.envs.make(name)
    env.reset()
    env.step(np.zeros((1, env.spaces.action), np.float32))
try:
    env.render()
except ValueError as error:
    print(error)
"""


def test_without_opengl_only_pictures_are_missing() -> None:
    message = run(NO_OPENGL)
    assert message.startswith("rendering needs OpenGL")
    assert "apt install libegl1 libgl1" in message
    assert message.count("\n") == 1


def test_jaco_leaves_the_environment_variables_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    with rendering.importing_dm_control():
        assert os.environ["MUJOCO_GL"] in ("egl", "disabled")
    assert "MUJOCO_GL" not in os.environ
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    with rendering.importing_dm_control():
        assert os.environ["MUJOCO_GL"] == "osmesa"


RENDERS = """
import weakref
class Early: pass
early = Early()
weakref.finalize(early, print, end="")  # whoever registers with atexit first is called last
import cic.envs
envs = [cic.envs.make(name) for name in ("point_mass", "point_mass", "gymnasium:Hopper-v5")]
for env in envs:
    env.reset()
    env.render(width=32, height=32)
envs[0].render(width=48, height=48)
print("drawn")
"""


def test_a_script_that_renders_and_ends_prints_nothing_more() -> None:
    try:
        cic.envs.make("point_mass").render(width=32, height=32)
    except UserError as error:
        pytest.skip(str(error))
    assert run(RENDERS) == "drawn\n"


@pytest.mark.parametrize("n", [1, 2])
def test_pictures(n: int) -> None:
    env = cic.envs.make("point_mass", n)
    env.reset(seed=1)
    try:
        before = env.render(n - 1, 64, 48)
    except UserError as error:  # what it says is tested above
        pytest.skip(str(error))
    assert before.shape == (48, 64, 3)
    assert before.dtype == np.uint8
    for _ in range(30):
        env.step(np.ones((n, 2), np.float32))
    after = env.render(n - 1, 64, 48)
    assert (before != after).any()
    assert env.render(0, 32, 32).shape == (32, 32, 3)
    env.close()
