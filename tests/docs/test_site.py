"""The site: it can be built, and loads nothing from elsewhere."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.live import ROOT
from tests.screen.builders import lab

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the site was built."""
    place = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(place)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return place


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    loads = re.compile(r"""<(?:script|img|iframe)\b[^>]*src=["']?https?:[^>]*|<link\b[^>]*href=["']?https?:[^>]*""")
    wrong = [(path.name, found) for path in site.rglob("*.html") for found in loads.findall(path.read_text("utf-8"))]
    wrong += [
        (path.name, found)
        for path in [*site.rglob("*.css"), *site.rglob("*.svg")]
        for found in re.findall(r"url\([\"']?https?:[^)]*|@import[^;]*", path.read_text("utf-8"))
    ]
    assert wrong == []


def test_the_picture_of_the_status_screen_needs_no_font_from_elsewhere() -> None:
    svg = runpy.run_path(str(ROOT / "docs" / "screen.py"))["drawn"](lab(3))
    assert "Workers" in svg
    assert "@font-face" not in svg
    assert "@font-face" not in (ROOT / "docs" / "pictures" / "status.svg").read_text(encoding="utf-8")
