"""``make machines`` takes an hour and needs root; here is what it says when it cannot make a machine."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.live import ROOT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it makes machines of Debian")
SCRIPT = ROOT / "tests" / "machines" / "run.sh"


def ran(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(SCRIPT), *arguments], capture_output=True, text=True, env=os.environ | environment, check=False
    )


def test_a_machine_that_there_is_not_is_named_with_those_that_there_are() -> None:
    done = ran("trixie", "potato")
    assert done.returncode == 2
    assert done.stderr == "there is no machine potato: choose of bookworm trixie forky\n"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="it is for root")
def test_a_machine_that_cannot_be_made_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    programs, temporary = tmp_path / "programs", tmp_path / "tmp"
    programs.mkdir()
    temporary.mkdir()
    for name in ("debootstrap", "gpgv", "git"):
        (programs / name).write_text('#!/bin/sh\necho "I: Retrieving"\necho "E: no such mirror"\nexit 1\n')
        (programs / name).chmod(0o755)
    if not Path("/usr/share/keyrings/debian-archive-keyring.gpg").exists():
        pytest.skip("Debian's keys are not here")
    done = ran("bookworm", PATH=f"{programs}:{os.environ['PATH']}", TMPDIR=str(temporary))
    if "names no mirror" in done.stderr:
        pytest.skip("this is no Debian")
    assert done.returncode == 1
    # Where not even root may make a namespace, that is the reason.
    assert re.fullmatch("bookworm could not be made: (E: no such mirror|unshare: .*)", done.stdout.splitlines()[-1])
    assert list(temporary.iterdir()) == []
