"""mypy reads every module, also one that was added after `make types` had laid its links."""

import subprocess
import sys
from pathlib import Path

from tests.architecture.reading import ROOMS, ROOT

READ = "from mypy.main import process_options; print(*[source.module for source in process_options([])[0]])"


def test_a_module_that_is_added_after_the_links_were_made_is_read(tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    folders = ("deskgrid", *ROOMS, "tests", "benchmarks", "docs", "examples")
    for folder in folders:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").touch()
    subprocess.run(["make", "types"], cwd=tmp_path, check=True)
    for folder in folders:
        (tmp_path / folder / "added.py").touch()
    read = subprocess.run([sys.executable, "-c", READ], cwd=tmp_path, check=True, capture_output=True, text=True)
    wanted = {f"deskgrid.{folder}.added" if folder in ROOMS else f"{folder}.added" for folder in folders}
    assert wanted <= set(read.stdout.split())
