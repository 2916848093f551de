"""Checks of our pages that run nothing: commands exist, links lead somewhere, plans and units are valid."""

import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

import deskgrid
from deskgrid.cli.front import main
from deskgrid.lazy_commands import LazyCommand
from deskgrid.windows.windows_file import windows_file
from deskgrid.worker.windows.clocks import read_clocks
from deskgrid.worker.windows.uptime import read_cycle, read_windows
from tests.architecture.reading import ROOMS
from tests.docs.pages import (
    ALL_BLOCKS,
    PAGES,
    RUN,
    Block,
    blocks,
    commands,
    exists,
    headings,
    inline_code,
    links,
    text_of,
)
from tests.live import ROOT

PICTURE = "docs/pictures/architecture.svg"
GLOSSARY = "docs/reference/glossary.md"
# What is installed.
SOURCE = ("deskgrid", *ROOMS)
FOLDERS = "|".join((*SOURCE, "benchmarks", "docs", "examples", "tests"))

SHOWN = [
    (str(block), arguments)
    for block in ALL_BLOCKS
    if block.language in ("sh", "powershell", "ini") and not block.is_run
    for line in block.text.splitlines()
    for arguments in commands(line)
]
NAMED = [
    (page, found[1].split())
    for page in PAGES
    for code in inline_code(page)
    if (found := re.match(r"deskgrid((?: [^|<>$]+)?)", code)) and (code == "deskgrid" or code.startswith("deskgrid "))
]
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def command_of(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that the words name, and its own arguments."""
    command: click.Command = main
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        command, words = command.commands[words[0]], words[1:]
        command = command.load() if isinstance(command, LazyCommand) else command
    return command, words


WRITTEN = runpy.run_path(str(ROOT / "docs" / "written.py"))


@pytest.mark.parametrize("page", WRITTEN["PAGES"])
def test_what_a_page_takes_from_the_program_is_as_it_is_there(page: str) -> None:
    assert text_of(page) == WRITTEN["written"](text_of(page)), "run make docs"


def test_every_command_and_every_name_is_in_the_reference() -> None:
    page = text_of("docs/reference/command-line.md")
    assert [name for name in main.commands if f"### deskgrid {name}\n" not in page] == []
    page = text_of("docs/reference/python.md")
    assert [name for name in deskgrid.__all__ if not re.search(rf"^#+ {name}$|\b{name}\b", page, re.MULTILINE)] == []


def test_a_page_that_is_out_of_date_is_found() -> None:
    page = text_of("docs/reference/command-line.md")
    assert WRITTEN["written"](page.replace("deskgrid broker [OPTIONS]", "deskgrid broker [OTHERS]")) == page


@pytest.mark.parametrize(("place", "arguments"), SHOWN, ids=str)
def test_a_command_that_is_shown_and_not_run_is_one(place: str, arguments: list[str]) -> None:
    command, rest = command_of(arguments)
    command.make_context(place, rest)


def test_an_option_that_does_not_exist_is_found() -> None:
    (arguments,) = commands("ExecStart=/opt/deskgrid/bin/deskgrid worker --wndows file.toml # ...")
    command, rest = command_of(arguments)
    with pytest.raises(click.UsageError, match="--wndows"):
        command.make_context("here", rest)


@pytest.mark.parametrize(("page", "words"), NAMED, ids=str)
def test_a_command_in_the_text_is_one(page: str, words: list[str]) -> None:
    if not words or words[0].startswith("-") or words[0] in ("COMMAND", "..."):
        return
    command, rest = command_of(words)
    known = {name for parameter in command.params for name in parameter.opts} | {"--help"}
    before_command = rest[: rest.index("--")] if "--" in rest else rest
    options = {word.strip("[]") for word in before_command if word.strip("[").startswith("--")}
    assert options <= known


def test_pages_show_commands() -> None:
    assert len(SHOWN) > 10
    assert len(NAMED) > 40
    assert len([block for block in ALL_BLOCKS if block.is_run]) > 25


@pytest.mark.parametrize("page", PAGES)
def test_no_page_has_the_marks_of_a_merge(page: str) -> None:
    assert not re.search(r"^(<{7} |={7}$|>{7} )", text_of(page), re.MULTILINE)


@pytest.mark.parametrize("page", PAGES)
def test_no_page_asks_a_tool_that_is_not_there_for_a_part_of_it(page: str) -> None:
    assert not re.search(r"^:::", text_of(page), re.MULTILINE), "docs/written.py writes what comes from the program"


@pytest.mark.parametrize("block", [block for block in ALL_BLOCKS if block.language in RUN], ids=str)
def test_a_block_that_is_not_run_says_why(block: Block) -> None:
    reason = block.note("not run")
    assert reason is None or len(reason.split()) > 3


@pytest.mark.parametrize("page", PAGES)
def test_what_make_is_asked_for_on_a_page_it_can_do(page: str) -> None:
    asked = re.findall(r"(?:^|`)make ([a-z-]+)", text_of(page), re.MULTILINE)
    assert set(asked) <= TARGETS


def leads_somewhere(page: str, link: str) -> bool:
    """Whether there is a file of ours, and in it the heading."""
    target, _, anchor = link.partition("#")
    path = (ROOT / page).parent.joinpath(target).resolve() if target else ROOT / page
    if not path.is_file() or not path.is_relative_to(ROOT):
        return False
    return not anchor or anchor in headings(path.relative_to(ROOT).as_posix())


@pytest.mark.parametrize("page", PAGES)
def test_a_link_leads_somewhere(page: str) -> None:
    wrong = [link for link in links(page) if not link.startswith("https://") and not leads_somewhere(page, link)]
    assert not wrong


@pytest.mark.parametrize("page", PAGES)
def test_a_file_or_folder_that_is_named_exists(page: str) -> None:
    named = [code for code in inline_code(page) if re.fullmatch(rf"(?:{FOLDERS})/[\w./-]*", code)]
    assert [path for path in named if not exists(path)] == []


def defines(file: str, name: str) -> bool:
    """Whether a module has a function, a class or a variable of that name; only the last part of the name counts."""
    last = name.split(".")[-1]
    return re.search(rf"^ *(def {last}\(|class {last}\b|{last}(: .*)? = )", text_of(file), re.MULTILINE) is not None


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_says_is_in_a_file_is_defined_there(page: str) -> None:
    named = re.findall(r"`([\w.]+)` in\s`((?:\w+/)+\w+\.py)`", text_of(page))
    assert [(name, file) for name, file in named if not defines(file, name)] == []


def test_what_is_not_defined_in_a_file_is_found() -> None:
    assert defines("scheduler/fitting.py", "Requirement.needs")
    assert not defines("scheduler/policies/base.py", "Requirement.needs")


def test_a_name_of_the_code_among_the_limits_is_one() -> None:
    code = "".join(
        path.read_text(encoding="utf-8")
        for room in ("broker", "deskgrid", "scheduler", "worker")
        for path in (ROOT / room).rglob("*.py")
    )
    names = {name for name in inline_code("docs/reference/limits.md") if re.fullmatch(r"[A-Z][A-Z_]+", name)}
    assert names
    assert {name for name in names if not re.search(rf"\b{name}\b", code)} == set()


def test_readme_is_short() -> None:
    assert len(text_of("README.md").splitlines()) <= 170


# --- files that pages show -------------------------------------------------------------------------------------------


def test_windows_that_a_page_shows_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "windows.toml"
    kinds = []
    for block in ALL_BLOCKS:
        kinds += [note for note in block.notes if note.startswith("windows of ")]
        path.write_text(block.text, encoding="utf-8")
        if "windows of a worker" in block.notes:
            assert read_windows(path) is not None
        elif "windows of the broker" in block.notes:
            file = windows_file(tmp_path)
            assert file.refresh()
            assert not file.problem
            assert file.content.tables
    assert sorted(kinds) == ["windows of a worker"] + ["windows of the broker"] * 4


def test_a_cycle_that_a_page_shows_can_be_read(tmp_path: Path) -> None:
    (block,) = [block for block in ALL_BLOCKS if block.note("file") == "cycle.txt"]
    (tmp_path / "cycle.txt").write_text(block.text, encoding="utf-8")
    assert read_cycle(tmp_path / "cycle.txt", read_clocks()) is not None


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not here")
@pytest.mark.parametrize("block", [block for block in ALL_BLOCKS if block.language == "ini"], ids=str)
def test_a_unit_is_one(block: Block, tmp_path: Path) -> None:
    path = tmp_path / "deskgrid.service"
    text = block.text
    path.write_text(text.replace("/opt/deskgrid/bin/deskgrid", sys.executable), encoding="utf-8")
    ran = subprocess.run(["systemd-analyze", "verify", str(path)], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


# --- the map and the glossary ----------------------------------------------------------------------------------------


def rows_of_the_map() -> list[str]:
    """The folders that have a row in the map, with the room to know first."""
    return re.findall(r"^\| `(\w+)/` \| .* \| `\1/[\w./]+`", text_of("docs/how-it-works.md"), re.MULTILINE)


def test_the_map_of_the_code_has_a_row_for_each_folder_at_the_top() -> None:
    code = {path.relative_to(ROOT).parts[0] for path in ROOT.glob("[a-z]*/*.py")}
    assert sorted(rows_of_the_map()) == sorted(code)


def test_the_picture_of_the_house_names_places_that_exist() -> None:
    named = re.findall(r"\b(?:\w+/)+(?:\w+\.py)?", " ".join(re.findall(r">([^<]+)</text>", text_of(PICTURE))))
    assert len(named) > 5
    assert [place for place in named if not exists(place)] == []


def test_each_folder_of_the_source_says_what_it_is_for() -> None:
    rooms = [path for room in SOURCE for path in (ROOT / room).rglob("__init__.py")]
    assert len(rooms) > 30
    assert [str(path) for path in rooms if not path.read_text(encoding="utf-8").startswith('"""')] == []


def steps_of_the_journey() -> list[tuple[str, str]]:
    """The functions that the journey of a task names, each with its file: its folder is at the top of its column."""
    (journey,) = [block for block in blocks("docs/how-it-works.md") if block.language == "text"]
    _, folders, *lines = journey.text.splitlines()
    starts = [found.span()[0] for found in re.finditer(r"\S+", folders)]
    return [
        (folders.split()[starts.index(found.start())] + found[1], function)
        for line in lines
        for found in re.finditer(r"([\w/]+\.py) (\w+(?:, \w+)*)", line)
        for function in found[2].split(", ")
    ]


def test_the_journey_of_a_task_names_functions_that_exist() -> None:
    steps = steps_of_the_journey()
    assert len(steps) > 40
    wrong = [(file, name) for file, name in steps if not re.search(rf"^ *def {name}\(", text_of(file), re.MULTILINE)]
    assert wrong == []


def terms_of(part: str) -> list[str]:
    """The terms that a part of the glossary defines, in its order."""
    _, _, rest = text_of(GLOSSARY).partition(f"## {part}\n")
    lines = re.findall(r"^- \*\*(.*?)\*\*: ", rest.partition("\n## ")[0], re.MULTILINE)
    return [term for line in lines for term in line.split("**, **")]


def lacking(terms: list[str], texts: list[str], least: int) -> list[str]:
    """The terms that fewer than ``least`` of ``texts`` contain, in the singular or in the plural."""
    words = {term: re.compile(rf"\b{term.removesuffix('y')}(y|ies|s|es)?\b", re.IGNORECASE) for term in terms}
    return [term for term, word in words.items() if sum(word.search(text) is not None for text in texts) < least]


def test_the_glossary_is_short_and_defines_each_term_once_in_alphabetical_order() -> None:
    users, code = terms_of("For users"), terms_of("In the code")
    assert users == sorted(users)
    assert [line for line in code if line != "priority queue"] == sorted({*code} - {"priority queue"})
    assert len({*users, *code}) == len(users) + len(code)
    assert 50 < len(users) + len(code) <= 75


def test_a_term_of_the_glossary_is_used_elsewhere() -> None:
    pages = [text_of(page) for page in PAGES if page != GLOSSARY]
    source = [path.read_text(encoding="utf-8") for room in SOURCE for path in (ROOT / room).rglob("*.py")]
    assert lacking(terms_of("For users"), pages, least=2) == []
    assert lacking(terms_of("In the code"), source, least=3) == []
    assert lacking(["attempt", "ghost of an attempt"], pages, least=2) == ["ghost of an attempt"]
