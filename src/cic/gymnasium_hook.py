"""Register the built-in environments with Gymnasium, as soon as both packages are imported.

Gymnasium (since 1.0) does not read entry points, and `import cic` must not import it, which takes a quarter of a
second. So `import cic` registers the environments at once if Gymnasium is imported already. Otherwise it leaves an
import hook that does so after `import gymnasium` and then removes itself.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

_IDS = "cic.envs.gymnasium_ids"


def register_with_gymnasium() -> None:
    """Make `gymnasium.make("cic/walker-run-v0")` work, now or after the import of Gymnasium."""
    if "gymnasium" in sys.modules:
        import_module(_IDS)
    elif not any(isinstance(finder, _Hook) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Hook())


class _Hook(MetaPathFinder):
    """Finds nothing itself; it wraps the loader of Gymnasium."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "gymnasium":
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _ThenRegister(spec.loader)
        return spec


class _ThenRegister(Loader):
    """Loads Gymnasium with its own loader, then registers the environments."""

    def __init__(self, own: Loader) -> None:
        self._own = own

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._own
        self._own.exec_module(module)
        import_module(_IDS)
