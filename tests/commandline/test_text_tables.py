"""Tables in the terminal."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cic.commandline.text_tables import print_table

WIDE = [f"column{index}" for index in range(9)]


def test_numbers_are_aligned_to_the_right(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["task", "mean"], [["a", "5"], ["[b]", "100"], ["c", "-"]])
    assert capsys.readouterr().out == "task  mean\na        5\n[b]    100\nc        -\n"


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_no_word_is_cut(columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    rows = [[f"row{row}-{title}" for title in WIDE] for row in range(3)]
    print_table(WIDE, rows)
    words = capsys.readouterr().out.split()
    assert sorted(words) == sorted([*WIDE, *(cell for row in rows for cell in row)])


def test_long_cells_are_wrapped(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    print_table(["name", "what"], [["cic", "one two three " * 10]])
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 40 for line in lines)
    assert lines[2].startswith("      ")


@pytest.mark.parametrize("command", ["objectives", "envs"])
def test_lists_fit_eighty_columns(command: str, output: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    *table, _ = output(command).splitlines()
    assert max(map(len, table)) <= 80
