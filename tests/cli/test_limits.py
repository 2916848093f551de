"""Sizes on the command line, and the effect of the broker's options."""

import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from deskgrid.broker import server
from deskgrid.broker.store.journal import _SYNCHRONOUS
from deskgrid.cli.broker import DURABILITIES, broker
from deskgrid.cli.sizes import memory_size


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512M", 512 * 1024**2),
        ("2g", 2 * 1024**3),
        ("1.5 GiB", 3 * 1024**3 // 2),
        ("70000000", 70_000_000),
        ("100 MB", 100 * 1024**2),
        ("1T", 1024**4),
    ],
)
def test_sizes_are_read(text: str, size: int) -> None:
    assert memory_size(text) == size


@pytest.mark.parametrize("text", ["", "much", "-1G", "1X", "G", "1e9", "nan", "9" * 400 + "G"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a size like 512M or 2G"):
        memory_size(text)


def test_a_limit_in_which_python_itself_has_no_room_is_refused() -> None:
    with pytest.raises(click.BadParameter, match="is too little: Python itself needs 64 MiB"):
        memory_size("10M")


def test_a_limit_beyond_what_a_system_can_be_told_is_refused() -> None:
    with pytest.raises(click.BadParameter, match="is more than any PC has"):
        memory_size(f"{2**23}T")


def test_no_limit_is_no_limit() -> None:
    assert memory_size("0") == 0


@pytest.mark.parametrize(("given", "chosen"), [([], "power"), (["--durability", "process"], "process")])
def test_the_broker_is_started_with_the_durability_that_was_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: list[str], chosen: str
) -> None:
    seen: list[str] = []

    def serve(options: server.BrokerOptions, *rest: Any) -> None:
        seen.append(options.durability)

    monkeypatch.setattr(server, "serve", serve)
    result = CliRunner().invoke(broker, ["--home", str(tmp_path), *given])
    assert (result.exit_code, seen) == (0, [chosen]), result.output


def test_the_command_line_offers_what_the_journal_has() -> None:
    assert set(DURABILITIES) == set(_SYNCHRONOUS)
