"""`cic report`: read run folders, compute statistics, write the page, the figures and the tables.

A section that fails is replaced by a notice; the other sections are still written.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cic.core.config import with_fields
from cic.core.errors import UserError
from cic.report import findings, groups, learning_curves, scores, stale_files, warnings
from cic.report.options import ReportOptions, ReportResult
from cic.report.page import Section, write_page
from cic.report.sections import HEADINGS, SECTIONS, Builder, facts
from cic.report.study_data import write_study
from cic.runs import records
from cic.runs.records import RunRecord

_FILES = ("config.json", "status.json", "metrics.jsonl", "result.json", "trials.json")
FileStates = dict[Path, tuple[int, int, bool]]


def report(
    runs: Path | str | Sequence[Path | str],
    out: Path | str = "report",
    options: ReportOptions | None = None,
    *,
    on_report: Callable[[ReportResult], None] = lambda result: None,
    **fields: Any,
) -> ReportResult:
    """Make tables, figures and one HTML page from run folders.

    Args:
        runs: Run folders, or folders of run folders.
        out: Folder for report.html, figures and tables.
        options: Options of the report.
        on_report: Receives every version of the report; with `watch=True` there are several.
        **fields: Fields of `ReportOptions` by name; they override `options`.

    Returns:
        The written files, the main results and the warnings.

    Example:
        ```python
        result = cic.report("runs", "report", paper="cic", figures=("png",))
        print(result.page, *result.findings, sep="\\n")
        ```
    """
    options = with_fields(options or ReportOptions(), fields)
    folders = [Path(path) for path in ([runs] if isinstance(runs, Path | str) else runs)]
    if options.watch:
        return watch(folders, Path(out), options, on_report)
    result = build_report(folders, Path(out), options)
    on_report(result)
    return result


def build_report(runs: Sequence[Path], out: Path, options: ReportOptions) -> ReportResult:
    """Write one version of the report."""
    _require_extra()
    scores.paper_rows(options.paper)  # an unknown name is an error before the work starts
    found, notices = records.read(runs)
    if not found and not options.paper:
        raise UserError("; ".join(notices) or "give at least one run folder")
    counted = warnings.without_duplicates(found, notices)
    study = groups.study(counted, options.mix, options.split, notices, options.budgets == "together")
    warnings.same_seeds(study.groups, notices)
    warnings.states(counted, notices)
    warnings.budgets(study.finetune, notices)
    computed = scores.compute(study, options, notices)
    builder = Builder(out, options, study, computed, learning_curves.load(counted, notices), notices)
    try:
        builder.out.mkdir(parents=True, exist_ok=True)
        if options.data is not None:
            write_study(options.data, found)
        for name, build in SECTIONS.items():
            _attempt(builder, HEADINGS[name].lower(), lambda build=build: build(builder))  # type: ignore[misc]
        return _write(builder, found, len(counted))
    except OSError as error:
        raise UserError(f"cannot write the report to {out}: {error.strerror or error}") from error


def _attempt(builder: Builder, name: str, build: Callable[[], None]) -> None:
    try:
        build()
    except UserError as error:
        builder.notices.append(f"{name}: {error}")
    except OSError:
        raise  # a full disk affects all sections
    except Exception as error:  # unexpected data in one section must not prevent the others
        builder.notices.append(f"{name} could not be created ({type(error).__name__}: {error})")


def _write(builder: Builder, found: Sequence[RunRecord], counted: int) -> ReportResult:
    sections = [Section(name, title, builder.parts[name]) for name, title in HEADINGS.items() if name in builder.parts]
    running = sum(run.going_on for run in found)
    sentences: list[str] = []
    _attempt(
        builder,
        "findings",
        lambda: sentences.extend(findings.findings(builder.study, builder.scores, builder.loaded, builder.options)),
    )
    path = builder.out / "report.html"
    write_page(
        path,
        sections,
        facts(found, builder.study, builder.scores),
        list(builder.study.styles.values()),
        findings=sentences,
        notices=builder.notices,
        refresh=builder.options.interval if builder.options.watch and running else None,
    )
    stale_files.remove(builder.out, [*builder.figures, *builder.tables])
    return ReportResult(
        path,
        tuple(builder.figures),
        tuple(builder.tables),
        tuple(sentences),
        tuple(builder.notices),
        counted,
        running,
    )


def _require_extra() -> None:
    for name in ("matplotlib", "jinja2"):
        if find_spec(name) is None:
            raise UserError(f"the report needs {name}: pip install 'cic[report]'")


# ---- watching runs ---------------------------------------------------------------------------------------------------


def watch(
    runs: Sequence[Path],
    out: Path,
    options: ReportOptions,
    on_report: Callable[[ReportResult], None] = lambda result: None,
    sleep: Callable[[float], None] = time.sleep,
) -> ReportResult:
    """Update the report whenever a run makes progress, until no run is in progress; wait for the first run."""
    options = replace(options, watch=True)
    before: FileStates | None = None
    result: ReportResult | None = None
    while True:
        now = _file_states(runs)
        if now != before and (now or options.paper):
            result = build_report(runs, out, options)
            on_report(result)
        before = now
        if result is not None and not result.running:
            return result
        sleep(options.interval)


def _file_states(runs: Sequence[Path]) -> FileStates:
    """Return size and time of every file that a report reads, and whether its run is in progress."""
    found: FileStates = {}
    for root in runs:
        if not Path(root).exists():
            raise UserError(f"{root} does not exist; give a run folder or a folder of run folders")
        for folder in records.folders(Path(root)):
            run = records.read_run(folder)
            in_progress = isinstance(run, records.RunRecord) and run.going_on
            for name in _FILES:
                try:
                    stat = (folder / name).stat()
                except OSError:  # not written yet, or being replaced
                    continue
                found[folder / name] = (stat.st_size, stat.st_mtime_ns, in_progress)
    return found
