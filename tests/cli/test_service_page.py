"""The page on services shows commands and options that there are, and a unit that systemd understands."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from deskgrid.cli.front import Later, main
from tests.live import ROOT

PAGE = (ROOT / "docs" / "service.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def shown() -> list[list[str]]:
    """The arguments of deskgrid, wherever the page shows some."""
    lines = [line for _, block in BLOCKS for line in block.splitlines()]
    lines += re.findall(r"`([^`\n]+)`", PAGE)
    found = [re.search(r"(?:^|[ =/\\])deskgrid(?:\.exe)? ((?:worker|broker|keys) ?[^#\"]*)", line) for line in lines]
    return [shlex.split(each[1]) for each in found if each]


@pytest.mark.parametrize("arguments", shown(), ids=" ".join)
def test_a_command_on_the_page_is_one(arguments: list[str]) -> None:
    command, words = main.commands[arguments[0]], arguments[1:]
    assert isinstance(command, Later)
    loaded = command.load()
    if isinstance(loaded, click.Group):
        loaded = loaded.commands[words.pop(0)]
    options = {name for parameter in loaded.params for name in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= options


def test_the_page_shows_commands() -> None:
    assert len(shown()) > 10


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not here")
def test_the_unit_is_one(tmp_path: Path) -> None:
    (unit,) = [block for kind, block in BLOCKS if kind == "ini"]
    path = tmp_path / "deskgrid-worker.service"
    path.write_text(unit.replace("/opt/deskgrid/bin/deskgrid", sys.executable), encoding="utf-8")
    ran = subprocess.run(["systemd-analyze", "verify", str(path)], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
