"""The page in a real browser: no complaint, no request, right numbers, no sideways scrolling on a phone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from browser import CHROMIUM, browser
from make_runs import finetune, media, pretrain

from cic.report import ReportOptions, report

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed (Debian: apt-get install chromium)"),
]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("browser")
    for method in ("ddpg", "cic", "a_method_with_quite_a_long_name"):
        for task in ("walker-run", "jaco-reach_bottom_right"):
            for seed, score in enumerate((90.0, 100.0, 120.0)):
                finetune(folder / "runs", task, method, seed, score)
    finetune(folder / "runs", seed=9, state="running")
    media(pretrain(folder / "runs"))
    return report([folder / "runs"], folder / "out", ReportOptions(paper=("all", "variants"), reps=50, figures=())).page


@pytest.mark.parametrize(("width", "mobile"), [(1280, False), (390, True), (320, True)])
def test_opens_without_a_word_and_fits(page: Path, width: int, mobile: bool) -> None:
    with browser() as tab:
        tab.open(page, width, 800, mobile)
        assert tab.of("Runtime.exceptionThrown") == []
        assert tab.of("Runtime.consoleAPICalled") == []
        assert [entry for entry in tab.of("Log.entryAdded") if entry["entry"]["level"] in ("error", "warning")] == []
        urls = {event["request"]["url"] for event in tab.of("Network.requestWillBeSent")}
        assert page.as_uri() in urls
        assert {url for url in urls if not url.startswith("data:")} == {page.as_uri()}
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        broken = "[...document.images].filter(i => !i.complete || i.naturalWidth === 0).length"
        assert tab.evaluate(broken) == 0
        assert tab.evaluate("document.compatMode") == "CSS1Compat"  # not quirks: the doctype is right


def test_numbers_as_the_browser_shows_them(page: Path) -> None:
    code = """[...document.querySelectorAll('#table-raw_scores tr')].map(
        row => [...row.cells].map(cell => cell.innerText.trim()))"""
    with browser() as tab:
        tab.open(page)
        head, first, *_ = tab.evaluate(code)
        row = dict(zip(head, first, strict=True))
    stderr = np.std([90, 100, 120], ddof=1) / np.sqrt(3)
    assert row["Task"] == "Run"
    assert row["CIC"] == f"103 ± {stderr:.0f}"
    assert row["CIC (paper)"] == "486 ± 25 (10)"


def test_text_is_large_enough_on_a_phone(page: Path) -> None:
    """The figures' smallest text, as scaled by the layout, and the smallest text of the page."""
    scale = "[...document.querySelectorAll('.panel img')].map(i => i.clientWidth / i.naturalWidth)"
    small = """Math.min(...[...document.querySelectorAll('main *')].filter(n => n.innerText)
        .map(n => parseFloat(getComputedStyle(n).fontSize)))"""
    with browser() as tab:
        tab.open(page, 390, 844, True)
        assert min(tab.evaluate(scale)) * 7.5 * 96 / 72 >= 7.5  # tick labels have 7.5 points
        assert tab.evaluate(small) >= 12
