"""`gymnasium.make("cic/walker-run-v0")`, whichever of the two packages was imported first.

Gymnasium has no plugins (since 1.0), and importing it here would cost `import cic` a quarter of a second. So where
Gymnasium is not there yet, a finder on `sys.meta_path` waits for it, once.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from cic.envs.catalogue import DOMAINS, names


def register_when_imported() -> None:
    """Register with Gymnasium, now or when it is imported."""
    if hasattr(sys.modules.get("gymnasium"), "register"):
        register_all()
    elif not any(isinstance(finder, _Waiting) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Waiting())


def ids() -> list[str]:
    """Every id that is registered, the reward-free domains among them."""
    return [f"cic/{name}-v0" for name in names()]


def register_all() -> None:
    """Register every built-in environment, for `gymnasium.make` and `gymnasium.make_vec`."""
    import gymnasium

    for name in names():
        gymnasium.register(
            id=f"cic/{name}-v0",
            entry_point="cic.envs.single:SingleEnv",
            vector_entry_point="cic.envs.single:make_vector",
            max_episode_steps=DOMAINS[name.partition("-")[0]].episode_length,
            kwargs={"name": name},
        )


class _Waiting(MetaPathFinder):
    """Finds `gymnasium` where it is, and registers after it has been loaded."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "gymnasium":
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _RegisteringLoader(spec.loader)
        return spec


class _RegisteringLoader(Loader):
    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Waiting)]
        self._loader.exec_module(module)
        register_all()
