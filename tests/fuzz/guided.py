"""The codec under a coverage-guided fuzzer (atheris), if that is installed; it is not a requirement.

python -m tests.fuzz.guided --count 1000000
"""

import argparse
import importlib.util
import random
import subprocess
import sys
import tempfile
from itertools import islice
from pathlib import Path

from tests.fuzz.frames import frames, packed, whole

# Frames to begin with, whole and mutated, and the longest that it makes.
SEEDS = 400
LONGEST = 2048


def _begin_with(folder: Path) -> None:
    dice = random.Random(1)
    whole_ones = [packed(whole(dice)) for _ in range(SEEDS)]
    for number, data in enumerate([*whole_ones, *islice(frames(1), SEEDS)]):
        (folder / str(number)).write_bytes(data)


def _fuzz(folder: str, count: int) -> None:
    """Does not return: the fuzzer ends the process."""
    atheris = importlib.import_module("atheris")
    for module in [name for name in sys.modules if name.startswith(("deskgrid.wire", "tests.fuzz.frames"))]:
        del sys.modules[module]
    with atheris.instrument_imports(include=["deskgrid.wire"]):
        importlib.import_module("deskgrid.wire")
    taken = importlib.import_module("tests.fuzz.frames").taken

    def judge(data: bytes) -> None:
        taken(data)

    limits = [
        f"-runs={count}",
        f"-max_len={LONGEST}",
        "-rss_limit_mb=512",
        f"-artifact_prefix={tempfile.gettempdir()}/",
    ]
    atheris.Setup([sys.argv[0], *limits, folder], judge)
    atheris.Fuzz()


def main() -> int:
    """Fuzz as the command line says; 1 when something crashes, and then the fuzzer has said what."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.guided", description="Guided fuzzing of the codec.")
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.folder:
        _fuzz(asked.folder, asked.count)
    if importlib.util.find_spec("atheris") is None:
        print("guided fuzzing is left out: there is no atheris for this Python")
        return 0
    with tempfile.TemporaryDirectory(prefix="deskgrid-fuzz-") as folder:
        _begin_with(Path(folder))
        argv = [sys.executable, "-m", "tests.fuzz.guided", "--count", str(asked.count), "--folder", folder]
        failed = subprocess.run(argv, check=False).returncode != 0
    print(f"guided: {'a crash, as said above' if failed else f'{asked.count:,} inputs, no crash'}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
