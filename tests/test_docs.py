"""The documentation: every code block runs, every link resolves, and the language follows the style guide."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from document_blocks import PAGES, ROOT, blocks_of, matches, name, run_page
from markdown.extensions.toc import slugify

import cic
from cic import cli
from cic.commandline.commands import COMMANDS

SLOW_PAGES = (
    "docs/explanation/learners.md",
    "docs/explanation/methods/",
    "docs/how-to/check-pretraining.md",
    "docs/how-to/choose-scale.md",
    "docs/how-to/coming-from.md",
    "docs/how-to/deploy.md",
    "docs/how-to/environment-options.md",
    "docs/how-to/explorer.md",
    "docs/how-to/export-",
    "docs/how-to/images-and-discrete-actions.md",
    "docs/how-to/pictures.md",
    "docs/how-to/report.md",
    "docs/how-to/sweep.md",
    "docs/how-to/train.md",
    "docs/index.md",
    "docs/tutorials/first-skills.md",
    "docs/tutorials/offline.md",
    "docs/tutorials/own-method.md",
    "docs/tutorials/sweep.md",
)
"""Pages and folders whose blocks train longest. Other tests in `make test` train the same."""

# Phrases that the style guide replaces, each with the words to use instead.
FORBIDDEN = {
    r"to the bit": "bit-exact",
    r"pays|paid|pay": "rewards",
    r"anew": "again, or a verb such as recomputed, redrawn, restarted",
    r"pre-training saw": "pre-training data",
    r"prior data": "pre-training data, relabelled replay",
    r"copies of the environment|(?:one|each|per) copy": "parallel environments",
    r"by the(?:se)? defaults": "with the default settings",
    r"(?:go|goes|went) (?:on|out|there)|a run goes": "continue, resume; reach",
    r"(?:is|are) worth": "improves … by",
    r"(?:come|comes|came) out": "is reproduced, the result",
    r"mends?": "fix",
    r"leaves? away": "omit",
    r"for want of": "for lack of",
    r"strangers?": "untrusted",
    r"says|said|tells": "states, contains, reports",
    r"as released|as in the text|the text's|found of the paper": "the `released` or `paper` preset",
    r"a number that is none|means? none": "NaN or infinite; invalid",
    r"at work": "active",
    r"half as much again": "by 50 %",
    r"make room": "free some space",
    r"the house|habits?": "package layout, rules",
    r"sheaf|sheaves|reel|lane|lesson": "the field's own word",
}
_FORBIDDEN = re.compile(rf"\b(?:{'|'.join(FORBIDDEN)})\b", re.IGNORECASE)
SOURCE = ROOT / "src" / "cic"
OTHER_TEXTS = [
    *(ROOT / f"{name}.md" for name in ("CHANGELOG", "CONTRIBUTING", "SECURITY")),
    *sorted((ROOT / "results").rglob("*.md")),
    *sorted((ROOT / "benchmarks").glob("*.md")),
    *sorted((ROOT / "examples").glob("*.py")),
]
MARKDOWN = [path for path in OTHER_TEXTS if path.suffix == ".md" and path.stem.isupper()]
"""Texts that are written by hand; tables of `cic reproduce` are not."""
_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
FLAGS_OF_OTHERS = {("sweep/ray_executor.py", "--address"), ("report/study_data.py", "--out")}
"""An option of Ray's own command, and a flag that is removed from the command in a run's record."""

_FENCED = re.compile(r"^([ ]*)```.*?^\1```$", re.DOTALL | re.MULTILINE)


EXECUTED = [page for page in PAGES if blocks_of(page)]
FAST = [page for page in EXECUTED if not name(page).startswith(SLOW_PAGES)]
SLOW = [page for page in EXECUTED if page not in FAST or any(block.slow for block in blocks_of(page))]


@pytest.mark.parametrize("page", FAST, ids=name)
def test_blocks_run(page: Path, tmp_path: Path) -> None:
    check_blocks(page, tmp_path, slow=False)


@pytest.mark.slow
@pytest.mark.parametrize("page", SLOW, ids=name)
def test_all_blocks_run(page: Path, tmp_path: Path) -> None:
    check_blocks(page, tmp_path, slow=True)


def check_blocks(page: Path, folder: Path, slow: bool) -> None:
    """If an output changed on purpose: make generated."""
    for block, output in run_page(page, folder, slow).items():
        assert output == block.code or matches(block.code, output), f"{name(page)}:{block.line}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_marks_of_blocks_are_valid(page: Path) -> None:
    for block in blocks_of(page):
        where = f"{name(page)}:{block.line}"
        if block.skipped:
            assert len(block.marks) > 1, f"{where}: `skip` needs a reason"
        else:
            assert set(block.marks) <= {"smoke", "slow"}, where
    shown = len(re.findall(r"^[ ]*```(?:sh|python|console)\b", page.read_text(encoding="utf-8"), re.MULTILINE))
    assert shown == len(blocks_of(page)), f"{name(page)}: a fence of sh, python or console is not closed"


def test_commands_and_flags_exist(capsys: pytest.CaptureFixture[str]) -> None:
    flags: dict[str, set[str]] = {}
    for command in COMMANDS:
        learners = ("ddpg", "td3", "sac") if command in ("pretrain", "finetune") else ()
        for extra in [["--learner", learner] for learner in learners] or [[]]:
            assert cli.main([command, "--help-all", *extra]) == 0
        flags[command] = set(re.findall(r"--[\w-]+", capsys.readouterr().out))
    for page in PAGES:
        for block in blocks_of(page):
            for command in block.commands:
                words = command.split()
                if words[0] != "cic" or words[1].startswith("-"):
                    continue
                assert words[1] in COMMANDS, f"{name(page)}: {command}"
                if "--import" in words:  # flags of the user's own method; the block itself is executed
                    continue
                used = {word.partition("=")[0] for word in words if word.startswith("--")}
                if "--objective" in words:  # the options of this objective
                    cli.main([words[1], "--help-all", *words[(at := words.index("--objective")) : at + 2]])
                    used -= set(re.findall(r"--[\w-]+", capsys.readouterr().out))
                assert used <= flags[words[1]] | {"--help", "--help-all"}, f"{name(page)}: {command}"


@pytest.mark.parametrize("page", [*PAGES, *MARKDOWN], ids=name)
def test_lines_are_short(page: Path) -> None:
    text = _FENCED.sub(lambda found: "\n" * found[0].count("\n"), page.read_text(encoding="utf-8"))
    long = [
        f"{name(page)}:{number}"
        for number, line in enumerate(text.splitlines(), 1)
        if len(line) > 120 and not line.lstrip(" >").startswith("|")
    ]
    assert not long, f"more than 120 characters: {', '.join(long)}"


def test_language_of_the_documentation() -> None:
    assert not [found for page in (*PAGES, *OTHER_TEXTS) for found in forbidden(page)]


def test_language_of_the_source() -> None:
    files = [*sorted(SOURCE.rglob("*.py")), *sorted(SOURCE.rglob("*.html")), ROOT / "Makefile", ROOT / "pyproject.toml"]
    assert not [found for file in files for found in forbidden(file)]


def test_the_library_names_parameters_and_no_flags() -> None:
    """Python users have no flags. The command line replaces `` `num_envs` `` in messages by `--num-envs`."""
    files = {file.relative_to(SOURCE).as_posix(): file for file in sorted(SOURCE.rglob("*.py"))}
    library = {place: file for place, file in files.items() if not place.startswith(("commandline/", "cli.py"))}
    found = {(place, flag) for place, file in library.items() for flag in _FLAG.findall(file.read_text("utf-8"))}
    assert found == FLAGS_OF_OTHERS


def forbidden(file: Path) -> list[str]:
    """The forbidden phrases of a file. A Markdown line that starts with `>` quotes a paper and is not checked."""
    lines = enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
    return [
        f'{name(file)}:{number}: "{found[0]}" (write: {replacement(found[0])})'
        for number, line in lines
        if not line.startswith("> ")
        for found in _FORBIDDEN.finditer(line)
    ]


def replacement(phrase: str) -> str:
    return next(text for pattern, text in FORBIDDEN.items() if re.fullmatch(pattern, phrase, re.IGNORECASE))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_resolve(page: Path) -> None:
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    for target, _, anchor in re.findall(r"\]\((?!https?://|mailto:)([^)#\s]*)(#([^)\s]+))?\)", text):
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), f"{name(page)} links to {target}, which does not exist"
        if anchor and file.suffix == ".md":
            assert anchor in anchors(file), f"{name(page)}: {target} has no section #{anchor}"


def anchors(page: Path) -> set[str]:
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {slugify(re.sub(r"[`*]|\]\([^)]*\)|\[", "", title), "-") for title in titles}


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in (ROOT / "docs").rglob("*.md"):
        assert f": {page.relative_to(ROOT / 'docs').as_posix()}" in navigation


@pytest.mark.slow
def test_the_site_builds_without_warnings(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True)


def test_the_citation_has_the_current_version() -> None:
    assert f"\nversion: {cic.__version__}\n" in (ROOT / "CITATION.cff").read_text()


# ---- the mechanism itself ----------------------------------------------------------------------------------------


def write_page(folder: Path, text: str) -> Path:
    page = folder / "page.md"
    page.write_text(text, encoding="utf-8")
    return page


def test_blocks_are_found_with_their_marks(tmp_path: Path) -> None:
    page = write_page(
        tmp_path,
        "<!-- test: smoke slow -->\n```sh\ncic envs  # all\n```\n\n"
        "    <!-- test: skip needs a GPU -->\n    ```python\n    x = 1\n    ```\n\n```text\nno\n```\n",
    )
    first, second = blocks_of(page)
    assert (first.language, first.commands, first.smoke, first.slow) == ("sh", ["cic envs"], True, True)
    assert (second.code, second.skipped, second.line) == ("x = 1\n", True, 7)


@pytest.mark.parametrize(
    "block",
    ["```python\n1 / 0\n```\n", "```sh\ncic envs --wrong\n```\n", "```sh\nfalse\n```\n", "```sh\nmake x\n```\n"],
)
def test_a_block_that_fails_is_an_error(block: str, tmp_path: Path) -> None:
    page = write_page(tmp_path, block)
    with pytest.raises(AssertionError, match=r"page\.md:1 failed"):
        run_page(page, tmp_path)


def test_output_may_leave_parts_open() -> None:
    assert matches("$ x\nstep … of 3\n", "$ x\nstep 2 of 3\n")
    assert not matches("$ x\nstep … of 3\n", "$ x\nstep 2 of 4\n")


def test_forbidden_phrases_are_found(tmp_path: Path) -> None:
    page = write_page(tmp_path, "It resumes to the bit.\nOn the bitmap, payment.\n> It pays, writes the paper.\n")
    (found,) = forbidden(page)
    assert ':1: "to the bit" (write: bit-exact)' in found
