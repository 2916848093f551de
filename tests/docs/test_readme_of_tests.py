"""tests/README.md: each of its examples is a test that passes, and the files that it names exist."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import Block, blocks, exists, headings, inline_code, links, text_of
from tests.live import ROOT

PAGE = "tests/README.md"
EXAMPLES = [block for block in blocks(PAGE) if block.language == "python"]


@pytest.mark.slow
@pytest.mark.parametrize("block", EXAMPLES, ids=str)
def test_an_example_is_a_test_that_passes(block: Block, tmp_path: Path) -> None:
    (path := tmp_path / "test_example.py").write_text(block.text, encoding="utf-8")
    plugin = block.note("plugin")
    assert plugin is not None
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            plugin,
            "-c",
            "pyproject.toml",
            "-p",
            "no:cacheprovider",
            str(path),
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout
    assert "1 passed" in ran.stdout


def test_it_has_an_example_for_each_kind_of_double() -> None:
    assert len(EXAMPLES) == 5
    wanted = {link for link in links(PAGE) if link.startswith("#")}
    assert len(wanted) == len(EXAMPLES)
    assert {link.removeprefix("#") for link in wanted} <= headings(PAGE)


def test_what_it_names_exists_and_it_names_each_folder_of_tests() -> None:
    named = {code for code in inline_code(PAGE) if re.fullmatch(r"(?:tests|papers|scheduler|deskgrid)/[\w./]*", code)}
    assert [path for path in named if not exists(path)] == []
    folders = {f"tests/{path.parent.name}/" for path in (ROOT / "tests").glob("*/__init__.py")}
    assert folders - named == set()


def test_the_marks_that_it_explains_are_those_of_the_project() -> None:
    told = set(re.findall(r"^- `(\w+)`: ", text_of(PAGE), re.MULTILINE))
    declared = set(re.findall(r'^    "(\w+): .*",$', text_of("pyproject.toml"), re.MULTILINE))
    assert told - {"hypothesis", "no_cover"} == declared  # these belong to Hypothesis and pytest-cov


def test_it_is_short() -> None:
    assert len(text_of(PAGE).splitlines()) <= 135
