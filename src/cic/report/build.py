"""`cic report`: read run folders, compute statistics, write the page, the figures and the tables.

A section that fails is replaced by a notice; the other sections are still written.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cic.core.config import with_fields
from cic.core.errors import UserError
from cic.report import groups, learning_curves, scores, warnings
from cic.report.findings import findings
from cic.report.options import ReportOptions, ReportResult
from cic.report.page import Section, write_page
from cic.report.sections import SECTIONS, Builder, facts
from cic.report.study_data import write_study
from cic.runs import records
from cic.runs.untrusted import read_object

_REPORT_FILE = re.compile(r"(figures|tables)/[a-z0-9_]+\.(png|pdf|csv|md|tex)")


def report(
    runs: Path | str | Sequence[Path | str],
    out: Path | str = "report",
    options: ReportOptions | None = None,
    **fields: Any,
) -> ReportResult:
    """Make tables, figures and one HTML page from run folders.

    Args:
        runs: Run folders, or folders of run folders.
        out: Folder for report.html, figures and tables.
        options: Options of the report.
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
    folders, out = [Path(path) for path in ([runs] if isinstance(runs, Path | str) else runs)], Path(out)
    _require_extra()
    scores.paper_rows(options.paper)  # an unknown name is an error before the work starts
    found, notices = records.read(folders)
    missing = warnings.missing_runs(folders, found, notices)
    if not found and not missing and not options.paper:
        raise UserError("; ".join(notices) or "give at least one run folder")
    counted = warnings.without_duplicates(found, notices)
    study = groups.study(counted, notices, options.mix)
    warnings.same_seeds(study.groups, notices)
    warnings.states(counted, notices)
    warnings.budgets(study.finetune, notices)
    computed = scores.compute(study, options, notices)
    builder = Builder(out, options, study, computed, learning_curves.load(counted, notices), notices, missing)
    try:
        out.mkdir(parents=True, exist_ok=True)
        if options.data is not None:
            write_study(options.data, found)
        for title, build in SECTIONS.values():
            _attempt(title.lower(), lambda build=build: build(builder), notices)  # type: ignore[misc]
        sentences: list[str] = []
        _attempt("findings", lambda: sentences.extend(findings(study, computed, options)), notices)
        sections = [
            Section(name, title, builder.parts[name]) for name, (title, _) in SECTIONS.items() if name in builder.parts
        ]
        page, shown = out / "report.html", list(study.styles.values())
        write_page(page, sections, facts(found, study, computed), shown, findings=sentences, notices=notices)
        _remove_stale(out, {path.relative_to(out).as_posix() for path in (*builder.figures, *builder.tables)})
    except OSError as error:
        raise UserError(f"cannot write the report to {out}: {error.strerror or error}") from error
    files = tuple(builder.figures), tuple(builder.tables)
    return ReportResult(page, *files, tuple(sentences), tuple(notices), len(counted))


def _require_extra() -> None:
    for name in ("matplotlib", "jinja2", "pandas"):
        if find_spec(name) is None:
            raise UserError(f"the report needs {name}: pip install 'cic[report]'")


def _attempt(name: str, build: Callable[[], None], notices: list[str]) -> None:
    try:
        build()
    except UserError as error:
        notices.append(f"{name}: {error}")
    except OSError:
        raise  # a full disk affects all sections
    except Exception as error:  # unexpected data in one section must not prevent the others
        notices.append(f"{name} could not be created ({type(error).__name__}: {error})")


def _remove_stale(out: Path, written: set[str]) -> None:
    """Remove files that an earlier report wrote and this one did not; `made.json` lists the files of a report."""
    earlier = read_object(out / "made.json")
    for name in earlier.get("files", []) if isinstance(earlier, dict) else ():
        path = out / str(name)
        if name not in written and _REPORT_FILE.fullmatch(str(name)) and not path.parent.is_symlink():
            path.unlink(missing_ok=True)
    draft = out / "made.json.part"
    draft.write_text(json.dumps({"files": sorted(written)}, indent=1) + "\n", "utf-8")
    os.replace(draft, out / "made.json")
