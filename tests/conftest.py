import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    """Tests share the machine; small networks gain nothing from more threads."""
    torch.set_num_threads(1)


@pytest.fixture
def short_regressions(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests to which it does not matter how well rewards are predicted."""
    monkeypatch.setattr("cic.training.library.UPDATES", 3)
