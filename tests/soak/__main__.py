"""Everything that ``make soak`` runs, one after the other, the quickest first; whatever fails, the others run.

python -m tests.soak                              a bit more than an hour
python -m tests.soak --only days --only hostile      some of it
python -m tests.soak --short                      a little of each, to see that it runs
python -m tests.soak --only sweep --go-on drizzle:700     a sweep that was interrupted
"""

import argparse
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field

from tests.live import ROOT


@dataclass(frozen=True, slots=True)
class Part:
    """A module to run with ``options``; ``short``: others for a quick look. ``environment``: what it needs beside."""

    module: str
    options: tuple[str, ...]
    short: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)
    short_environment: dict[str, str] = field(default_factory=dict)


PARTS = {
    "frames": Part("tests.fuzz.frames", ("--count", "1000000"), ("--count", "20000")),
    "guided": Part("tests.fuzz.guided", ("--count", "1000000"), ("--count", "20000")),
    "hostile": Part("tests.hostile.siege", ("--count", "1000000"), ("--count", "5000")),
    "findings": Part(
        "pytest",
        ("-q", "-s", "tests/hostile", "-k", "not siege"),
        ("-q", "tests/hostile", "-k", "escapes"),
        {"HOSTILE": "large"},
    ),
    "large": Part(
        "tests.soak.large",
        ("--tasks", "10000000"),
        ("--tasks", "100000", "--bags", "200", "--pcs", "20"),
    ),
    "chaos": Part(
        "pytest",
        ("-q", "tests/chaos"),
        ("-q", "tests/chaos"),
        {"CHAOS_S": "60", "CHAOS_DEATHS": "5"},
        {"CHAOS_S": "6"},
    ),
    "faults": Part(
        "pytest",
        (
            *("-q", "tests/mutations", "tests/grid/test_faults.py", "tests/grid/test_crash_points.py"),
            "tests/client/test_handlers.py",
        ),
        ("-q", "tests/mutations", "-k", "fits"),
        {"PROOFS": "all"},
    ),
    "processes": Part("tests.soak.processes", ("--minutes", "10"), ("--minutes", "0.3")),
    "days": Part("tests.soak.days", ("--minutes", "20", "--workers", "1000"), ("--minutes", "0", "--workers", "10")),
    "sweep": Part("tests.grid.sweep", ("--seeds", "20000"), ("--seeds", "100")),
}


@dataclass(frozen=True, slots=True)
class Ran:
    """A part that was run. ``said``: its last line."""

    name: str
    seconds: float
    ok: bool
    said: str

    def __str__(self) -> str:
        return f"{self.name:10} {'ok    ' if self.ok else 'FAILED'} {self.seconds:6.0f} s  {self.said}"


def run(name: str, part: Part, *, short: bool, more: list[str]) -> Ran:
    """Run one part in a process of its own, and pass on what it says."""
    options = part.short if short else part.options
    environment = part.short_environment if short else part.environment
    argv = [sys.executable, "-m", part.module, *options, *more]
    print(f"--- {name}: {' '.join(argv[1:])}", flush=True)
    began, said = time.monotonic(), ""
    with subprocess.Popen(argv, cwd=ROOT, env=os.environ | environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            said = line.strip() or said
    return Ran(name, time.monotonic() - began, process.returncode == 0, said)


def main() -> int:
    """Run what the command line asks for; 1 when a part fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description="An hour of faults, attacks and work.")
    parser.add_argument("--only", action="append", choices=PARTS, metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--short", action="store_true", help="a little of each, to see that it runs")
    parser.add_argument("--go-on", metavar="WEATHER:SEED", help="begin the sweep there")
    asked = parser.parse_args()
    more = {"sweep": ["--go-on", asked.go_on]} if asked.go_on else {}
    names = [name for name in PARTS if not asked.only or name in asked.only]
    ran = [run(name, PARTS[name], short=asked.short, more=more.get(name, [])) for name in names]
    print("--- soaked", *ran, sep="\n")
    return 0 if all(each.ok for each in ran) else 1


if __name__ == "__main__":
    sys.exit(main())
