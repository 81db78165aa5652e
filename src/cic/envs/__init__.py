"""Where experience comes from: `make("walker-run", num_envs=16)`, `register_env`, `domains()`.

Importing this package imports neither numpy nor Gymnasium nor MuJoCo, yet registers the built-in environments with
Gymnasium: at once if it has been imported, else as soon as it is.
"""

from __future__ import annotations

from cic.envs.catalogue import DOMAINS, DomainInfo
from cic.envs.gymnasium_ids import register_when_imported
from cic.envs.registry import make, register_env, split_name

register_when_imported()


def domains() -> dict[str, DomainInfo]:
    """The built-in domains, without building any physics."""
    return dict(DOMAINS)


def domain_of(name: str) -> str:
    """The domain of an environment's name: `"walker-run"` → `"walker"`."""
    return split_name(name)[0]


__all__ = ["DomainInfo", "domain_of", "domains", "make", "register_env", "split_name"]
