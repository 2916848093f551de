"""Each paper's page says where its equations are in the code. They are there."""

import re
from pkgutil import resolve_name

import pytest

from deskgrid.papers import PAPERS
from tests.architecture.reading import ROOMS, ROOT

ROW = re.compile(r"^\| .* \| .* \| (`.*`) \|$", re.MULTILINE)
NAMED = [
    (folder, name)
    for folder in PAPERS.values()
    for cell in ROW.findall((ROOT / "papers" / folder.split(".")[-1] / "README.md").read_text(encoding="utf-8"))
    for name in cell.replace("`", "").split(", ")
]


@pytest.mark.parametrize(("folder", "name"), NAMED)
def test_what_a_page_names_is_there(folder: str, name: str) -> None:
    assert resolve_name(f"deskgrid.{name}" if name.split(".")[0] in ROOMS else f"{folder}.{name}")


def test_each_paper_has_such_a_page() -> None:
    assert {folder for folder, _ in NAMED} == set(PAPERS.values())
