"""The scripts in examples/ run and stay short."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

EXAMPLES = Path(__file__).parents[1] / "examples"
LONG = {"demo.py", "make_agents.py"}
"""Not examples of the API: the demo of `make demo`, and the script that trains the bundled agents."""
SCRIPTS = {
    "deploy_policy.py": (["policy.pt2"], "largest difference"),
    "own_environment.py": (["smoke"], "return with pre-training"),
    "own_method.py": (["smoke"], "surprise: visited"),
    "steer.py": (["smoke"], "-speed  east"),
    "sweep.py": (["smoke"], "10 of 10 runs done"),
    "zero_shot.py": (["smoke"], "return with the inferred skill"),
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name != "own_environment.py")) for name in sorted(SCRIPTS)],
)
def test_example_runs(name: str, tmp_path: Path) -> None:
    arguments, expected = SCRIPTS[name]
    command = [sys.executable, "-W", "error::DeprecationWarning:__main__", str(EXAMPLES / name), *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert expected in done.stdout
    assert "Traceback" not in done.stderr


def test_examples_are_short_and_tested() -> None:
    scripts = {path.name: path for path in EXAMPLES.glob("*.py") if path.name not in LONG}
    assert set(SCRIPTS) <= set(scripts)
    for name, path in scripts.items():
        assert len(path.read_text().splitlines()) < 60, name


@pytest.mark.slow
def test_named_quantities_are_commanded(tmp_path: Path) -> None:
    """With all its steps, the example sails to either side, fast or not at all."""
    done = subprocess.run([sys.executable, str(EXAMPLES / "steer.py")], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    numbers = {
        line.split()[0]: [float(word.strip(",")) for word in line.split()[2::3]] for line in done.stdout.splitlines()
    }
    assert numbers["east"][0] > 0.7
    assert numbers["-east"][0] < -0.7
    assert numbers["speed"][1] > numbers["-speed"][1] + 0.5


@pytest.mark.slow
def test_the_film_of_the_readme_is_made(tmp_path: Path) -> None:
    import cic
    from cic.core.errors import UserError

    try:
        cic.envs.make("point_mass?pixels=20").reset(seed=0)
    except UserError as error:  # without OpenGL
        pytest.skip(str(error))
    spec = importlib.util.spec_from_file_location("steering_film", EXAMPLES / "steering_film.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main(tmp_path / "film.webp", seconds=0.2)
    assert Image.open(tmp_path / "film.webp").n_frames > len(module.SCENES)
