"""Environments: `make("walker-run", num_envs=16)`, `register_env`, `domains()`.

Importing this package imports neither numpy nor Gymnasium nor MuJoCo.
"""

from __future__ import annotations

from cic.envs.catalogue import DOMAINS, DomainInfo
from cic.envs.registry import (
    REWARD,
    has_discrete_actions,
    make,
    named_quantities,
    register_env,
    split_name,
    would_run,
)


def domains() -> dict[str, DomainInfo]:
    """List the built-in domains with their tasks. No simulator is built.

    Returns:
        Domains by name.

    Example:
        ```python
        print(cic.envs.domains()["walker"].tasks)
        ```
    """
    return dict(DOMAINS)


def domain_of(name: str) -> str:
    """The domain of an environment's name: `"walker-run"` → `"walker"`."""
    return split_name(name)[0]


def tasks(name: str) -> tuple[str, ...]:
    """The tasks whose rewards an environment returns: those of a built-in domain, else none."""
    domain = DOMAINS.get(split_name(name)[0])
    return () if domain is None else domain.tasks


__all__ = [
    "REWARD",
    "DomainInfo",
    "domain_of",
    "domains",
    "has_discrete_actions",
    "make",
    "named_quantities",
    "register_env",
    "split_name",
    "tasks",
    "would_run",
]
