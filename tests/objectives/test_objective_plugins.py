"""A user's method in a single file outside the package."""

from __future__ import annotations

import importlib
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from objective_setup import Representation, build, make_batch

from cic.core.errors import UserError
from cic.learning.objectives import Objective, base, get_objective, objectives, register

METHOD = '''
    """Prediction error as reward (Author et al. 2020, eq. 3)."""

    from dataclasses import dataclass

    import torch

    from cic.learning.networks import mlp
    from cic.learning.objectives import Objective, register

    @dataclass(frozen=True)
    class SurpriseOptions:
        bonus: float = 0.5
        """Added to every reward."""

    {decorator}
    class Surprise(Objective):
        """Prediction error (Author et al. 2020)."""

        Options = SurpriseOptions

        def __init__(self, spaces, hidden, options):
            super().__init__(spaces, hidden, options)
            self.model = mlp(spaces.obs + spaces.action, hidden, spaces.obs)

        def loss(self, batch):
            error = self._error(batch).mean()
            return error, {{"surprise/error": error.detach()}}

        @torch.no_grad()
        def reward(self, batch):
            return torch.log1p(self._error(batch)) + self.options.bonus

        def _error(self, batch):
            predicted = self.model(torch.cat([batch.obs, batch.action], dim=1))
            return (batch.next_obs - predicted).square().mean(dim=1, keepdim=True)
'''

Write = Callable[[str, str], Path]


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "_REGISTRY", dict(base._REGISTRY))


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """A file in a folder on the path, as an installed plug-in has."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text))
        importlib.invalidate_caches()
        return path

    return write


def install(write: Write, module: str, entry: str) -> None:
    write(f"{module}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    write(f"{module}-1.0.dist-info/entry_points.txt", f"[cic.objectives]\n{entry}\n")


def assert_it_works(name: str) -> None:
    assert name in dict(objectives())
    objective = build(name)
    representation = Representation(objective)
    rewards = [representation.update(make_batch(objective.skills)) for _ in range(30)]
    assert rewards[0].shape == (32, 1)
    assert rewards[-1].mean() < rewards[0].mean()  # surprise wears off

    resumed = build(name, seed=5)
    resumed.load_state_dict(objective.state_dict())
    batch = make_batch(objective.skills, seed=7)
    assert torch.equal(resumed.reward(batch), objective.reward(batch))


def test_register_in_a_single_file(write):
    write("own_surprise.py", METHOD.format(decorator='@register("surprise")'))
    importlib.import_module("own_surprise")
    assert_it_works("surprise")
    assert get_objective("surprise").title == "surprise"


def test_an_installed_entry_point(write):
    write("installed_surprise.py", METHOD.format(decorator=""))
    install(write, "installed_surprise", "astonish = installed_surprise:Surprise")
    assert get_objective("astonish").__name__ == "Surprise"
    assert_it_works("astonish")


def test_an_entry_point_that_fails_is_named(write):
    write("broken_surprise.py", "raise RuntimeError('no such luck')")
    install(write, "broken_surprise", "broken = broken_surprise:Surprise")
    with pytest.raises(UserError, match=r'"broken" \(broken_surprise:Surprise\) fails to load: no such luck'):
        list(objectives())
    assert get_objective("icm").title == "ICM", "the built-in methods do not depend on it"


def test_what_cannot_be_registered():
    with pytest.raises(UserError, match=r"by its name"):
        register(Objective)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="subclass"):
        register("thing")(int)  # type: ignore[type-var]

    @dataclass
    class Thawed:
        size: int = 1

    with pytest.raises(UserError, match="frozen"):
        register("thawed")(type("Melting", (Objective,), {"Options": Thawed}))
    with pytest.raises(UserError, match="registered already"):
        register("icm")(type("Other", (Objective,), {}))


def test_a_misspelt_name_is_answered_with_the_right_one():
    with pytest.raises(UserError, match='did you mean "diayn"'):
        get_objective("dyain")
