"""`cic explore` as it is typed: what it refuses and what it prints."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from open_page import OpenPage, wait_until

from cic.cli import main
from cic.runs.bundled import FOLDER


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["explore", *words, "--no-open"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("cic: ")
    assert "Traceback" not in said
    return said


def test_what_cannot_be_shown_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "does not exist" in refused([str(tmp_path / "nothing")], capsys)
    young = tmp_path / "young"
    shutil.copytree(FOLDER / "point_mass", young)
    shutil.rmtree(young / "milestones")
    assert "no checkpoint yet" in refused([str(young)], capsys)
    hurt = tmp_path / "hurt"
    shutil.copytree(FOLDER / "point_mass", hurt)
    (weights,) = hurt.rglob("agent.safetensors")
    weights.write_bytes(weights.read_bytes()[:-100])
    assert "damaged" in refused([str(hurt)], capsys)
    assert "damaged" in refused(["walker", str(hurt)], capsys)  # also where it is not the first
    weights.write_bytes(b"\x80\x04" + bytes(100))
    assert "damaged" in refused([str(hurt)], capsys)  # a pickle is not read


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["walker", "--skill", "2"], "lie in"),
        (["walker", "--skill", "0.1", "0.2"], "dimension 64"),
        (["walker", "--count", "1"], "at least 2"),
        (["walker", "--port", "99999"], "between 0 and 65535"),
        (["walker", "--host", "no.such.host.invalid"], "cannot listen"),
        (["walker", "--at", "7"], "no weights at step 7"),
        (["walker", "--seed", "-1"], "seed"),
    ],
)
def test_bad_settings_are_reported(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said in refused(words, capsys)


def test_without_viser_it_names_the_extra_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "viser", None)
    assert "pip install 'cic[explore]'" in refused(["point_mass"], capsys)


def test_a_port_in_use_gives_way_and_ctrl_c_ends(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        command = [
            sys.executable,
            "-m",
            "cic.cli",
            "explore",
            "point_mass",
            "--no-open",
            "--port",
            str(port),
            "--count",
            "4",
        ]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
        try:
            assert process.stdout is not None
            assert f"port {port} is in use; took " in process.stdout.readline()
            address = process.stdout.readline()
            assert address.startswith("CIC in point_mass: http://127.0.0.1:")
            page = OpenPage(int(address.split(":")[3].split()[0]))
            wait_until(lambda: page.frames > 3)
            os.kill(process.pid, signal.SIGINT)
            out, err = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 0
    assert out == "closed\n"
    assert err == ""
