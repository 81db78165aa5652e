"""Tables in a terminal: nothing runs together, nothing is cut."""

from __future__ import annotations

import pytest
from helpers import steady
from hypothesis import given
from hypothesis import strategies as st

from cic import cli
from cic.commandline.text_tables import layout

WORDS = st.text("abcdefgh", min_size=1, max_size=12)


@steady
@given(st.data(), st.integers(2, 9), st.integers(1, 4), st.integers(40, 120))
def test_every_cell_is_there_and_columns_stay_apart(data: st.DataObject, columns: int, rows: int, width: int) -> None:
    header = [f"{data.draw(WORDS)}{column}" for column in range(columns)]
    body = [[f"{data.draw(WORDS)}{row}" for _ in header] for row in range(rows)]
    text = layout(header, body, width)
    assert all(len(line) <= max(width, 2 * 14) for line in text.splitlines())
    found = [word for line in text.splitlines() for word in line.split()]
    for word in [*header, *(cell for row in body for cell in row)]:
        assert word in found, "whole, with space on both sides"


def test_numbers_are_aligned_to_the_right() -> None:
    assert layout(["task", "mean"], [["a", "5"], ["b", "100"]], 80) == "task  mean\na        5\nb      100"


def test_a_long_last_column_is_wrapped() -> None:
    text = layout(["name", "what"], [["cic", "one two three " * 10]], 40)
    assert all(len(line) <= 40 for line in text.splitlines())
    assert text.splitlines()[2].startswith("      ")


def test_the_methods_fit_eighty_columns(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for command in ("objectives", "envs"):
        assert cli.main([command]) == 0
        *table, _ = capsys.readouterr().out.splitlines()
        assert max(map(len, table)) <= 80
        assert "  " in table[0]
