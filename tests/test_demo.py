"""The demo takes away what an earlier demo made, and nothing else."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture(scope="module")
def demo() -> ModuleType:
    spec = importlib.util.spec_from_file_location("demo", EXAMPLES / "demo.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_folder_of_somebody_else_is_left_alone(
    demo: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years of work")
    monkeypatch.setattr("sys.argv", ["demo.py", "--out", str(tmp_path / "thesis")])
    with pytest.raises(SystemExit, match="was not made by the demo"):
        demo.main()
    assert [path.name for path in (tmp_path / "thesis").iterdir()] == ["chapter.tex"]
    with pytest.raises(SystemExit, match="was not made by the demo"):
        demo.make_room(tmp_path / "thesis" / "chapter.tex")


def test_files_of_an_earlier_demo_are_removed_and_others_kept(demo: ModuleType, tmp_path: Path) -> None:
    demo.make_room(tmp_path / "demo")
    (tmp_path / "demo" / "skills" / "checkpoints").mkdir(parents=True)
    (tmp_path / "demo" / "notes.txt").write_text("mine")
    demo.make_room(tmp_path / "demo")
    assert sorted(path.name for path in (tmp_path / "demo").iterdir()) == sorted([demo.MARK, "notes.txt"])


def test_an_empty_folder_will_do(demo: ModuleType, tmp_path: Path) -> None:
    demo.make_room(tmp_path)
    demo.make_room(tmp_path / "new" / "below")
    assert (tmp_path / "new" / "below" / demo.MARK).is_file()
