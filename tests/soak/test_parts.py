"""``make soak`` runs everything, whatever fails, and says so in the end."""

import subprocess
import sys

import pytest

from tests.live import ROOT
from tests.soak import __main__ as soak


def ran(*arguments: str) -> "subprocess.CompletedProcess[str]":
    argv = [sys.executable, "-m", "tests.soak", *arguments]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_part_is_run_in_short_and_its_count_is_said_again_in_the_end() -> None:
    done = ran("--short", "--only", "frames")
    assert done.returncode == 0
    *_, heading, line = done.stdout.splitlines()
    assert heading == "--- soaked"
    assert line.startswith("frames     ok ")
    assert "20,000 inputs" in line


def test_a_part_that_fails_does_not_keep_the_next_one_from_running(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    parts = {name: soak.Part("json.tool", (), options) for name, options in (("bad", ("/no/file",)), ("good", ("-h",)))}
    monkeypatch.setattr(soak, "PARTS", parts)
    monkeypatch.setattr(sys, "argv", ["soak", "--short"])
    assert soak.main() == 1
    bad, good = capfd.readouterr().out.splitlines()[-2:]
    assert bad.startswith("bad        FAILED")
    assert good.startswith("good       ok ")
