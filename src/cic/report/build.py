"""`cic report`: read run folders, compute, write the page, the figures and the tables.

Reads run folders and nothing else. One section that fails costs that section, not the report.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

from cic.core.errors import UserError
from cic.report import figures, findings, groups, learning_curves, paper, scores, stale_files, warnings
from cic.report.appendix import facts
from cic.report.options import ReportOptions, ReportResult
from cic.report.page import Section, page
from cic.report.sections import HEADINGS, SECTIONS, Builder
from cic.runs import records
from cic.runs.records import RunRecord


def report(runs: Sequence[Path], out: Path, options: ReportOptions | None = None) -> ReportResult:
    """Make the report of all run folders at or below `runs` in the folder `out`."""
    options = options or ReportOptions()
    _require_extra()
    paper.select(options.paper)  # a wrong name is said before the work
    found, said = records.read([Path(path) for path in runs])
    if not found and not options.paper:
        raise UserError("; ".join(said) or "give at least one run folder")
    counted = warnings.without_twins(found, said)
    study = groups.study(counted, options.mix, options.split, said, options.budgets == "together")
    warnings.same_seeds(study.groups, said)
    warnings.states(counted, said)
    warnings.budgets(study.finetune, said)
    computed = scores.compute(study, options, said)
    builder = Builder(Path(out), options, study, computed, learning_curves.load(counted, said), said)
    try:
        builder.out.mkdir(parents=True, exist_ok=True)
        for name, build in SECTIONS.items():
            _attempt(builder, name, build)
        return _write(builder, found, counted)
    except OSError as error:
        raise UserError(f"cannot write the report to {out}: {error.strerror or error}") from error


def _attempt(builder: Builder, name: str, build: Callable[[Builder], None]) -> None:
    try:
        build(builder)
    except UserError as error:
        builder.notices.append(f"{HEADINGS[name].lower()}: {error}")
    except OSError:
        raise  # a full disk is not one section's matter
    except Exception as error:  # whatever odd data does to one section, the others are still made
        builder.notices.append(f"{HEADINGS[name].lower()} could not be made ({type(error).__name__}: {error})")


def _write(builder: Builder, found: Sequence[RunRecord], counted: Sequence[RunRecord]) -> ReportResult:
    sections = [
        Section(name, HEADINGS[name], "".join(builder.sections[name])) for name in HEADINGS if name in builder.sections
    ]
    running = sum(run.going_on for run in found)
    opening = _findings(builder)
    text = page(
        facts(found, builder.study, builder.scores),
        opening,
        builder.notices,
        sections,
        [figures.key(style) for style in builder.study.styles.values()],
        refresh=builder.options.interval if builder.options.watch and running else None,
    )
    stale_files.clear(builder.out, [*builder.figures, *builder.tables])
    path = builder.out / "report.html"
    draft = path.with_suffix(".html.part")
    draft.write_text(text, encoding="utf-8", errors="replace")  # a config may hold half a surrogate pair
    os.replace(draft, path)  # a browser that reloads never sees half a page
    return ReportResult(
        path,
        tuple(builder.figures),
        tuple(builder.tables),
        tuple(opening),
        tuple(builder.notices),
        len(counted),
        running,
    )


def _findings(builder: Builder) -> list[str]:
    try:
        return findings.findings(builder.study, builder.scores, builder.loaded, builder.options)
    except Exception as error:  # as for a section
        builder.notices.append(f"the findings could not be made ({type(error).__name__}: {error})")
        return []


def _require_extra() -> None:
    if find_spec("matplotlib") is None:
        raise UserError("the report needs matplotlib: pip install 'cic[report]'")
