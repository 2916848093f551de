"""Our pages as tests read them: blocks of code, comments before a block, links, and commands in the text.

Two comments before a block say what to do with it: ``<!-- not run: REASON -->``, and ``<!-- file: NAME -->``. The
second has the block written to that file, which later blocks use.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.live import ROOT

PAGES = tuple(
    path.relative_to(ROOT).as_posix() for path in (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")))
)
# Languages that are run. The others are shown, or read by tests of their own.
RUN = ("sh", "python")

_FENCE = re.compile(r"^``` ?(\w*)$")
_COMMENT = re.compile(r"^<!-- (.*) -->$")
# What begins and what ends a command in a line of shell.
_BEGINS = {"|", "||", "&&", ";", "&", "("}
_ENDS = {"|", "||", "&&", ";", "&", ">", "2>"}


@dataclass(frozen=True, slots=True)
class Block:
    """A block of code. ``notes``: the comments directly before it."""

    page: str
    line: int
    language: str
    text: str
    notes: tuple[str, ...]

    def note(self, key: str) -> str | None:
        """What the comment that begins with ``key`` says."""
        return next((note.removeprefix(f"{key}: ") for note in self.notes if note.startswith(f"{key}: ")), None)

    @property
    def is_run(self) -> bool:
        return self.language in RUN and self.note("not run") is None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@cache
def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


@cache
def blocks(page: str) -> tuple[Block, ...]:
    """The blocks of a page, in order."""
    found, notes = list[Block](), list[str]()
    language, began, body = "", 0, list[str]()
    for number, line in enumerate(text_of(page).splitlines(), start=1):
        if began and line == "```":
            found.append(Block(page, began, language, "\n".join([*body, ""]), tuple(notes)))
            began, body, notes = 0, [], []
        elif began:
            body.append(line)
        elif fence := _FENCE.match(line):
            language, began = fence[1], number
        elif comment := _COMMENT.match(line):
            notes.append(comment[1])
        elif line:
            notes = []
    assert not began, f"{page}:{began} does not end"
    return tuple(found)


ALL_BLOCKS = tuple(block for page in PAGES for block in blocks(page))


def prose(page: str) -> str:
    """The page without its blocks."""
    return re.sub(r"^```.*?^```$", "", text_of(page), flags=re.DOTALL | re.MULTILINE)


def inline_code(page: str) -> list[str]:
    return re.findall(r"(?<!`)`([^`\n]+)`(?!`)", prose(page))


def links(page: str) -> list[str]:
    """What the page's links and pictures point to."""
    return re.findall(r"\]\(([^)\s]+)\)", prose(page))


def words_of(line: str) -> list[str]:
    """A line of shell, PowerShell or a unit as words."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;()<>")
    lexer.whitespace_split, lexer.escape = True, ""
    return list(lexer)


def commands(line: str) -> Iterator[list[str]]:
    """The arguments of each deskgrid that the line calls."""
    if (quoted := re.search(r'"([^"]*deskgrid\.exe [^"]*)"', line)) is not None:
        line = quoted[1]  # of runas
    called = re.sub(r"\$\(\(.*?\)\)", "1", line)
    words = words_of(called) if re.search(r"\bdeskgrid\b", called) else []
    for place, word in enumerate(words):
        begins = place == 0 or words[place - 1] in _BEGINS or word.startswith("ExecStart=")
        if begins and re.search(r"(^|[=/\\])deskgrid(\.exe)?$", word):
            rest = words[place + 1 :]
            end = next((at for at, each in enumerate(rest) if each in _ENDS or each.startswith(")")), len(rest))
            yield rest[:end]


def headings(page: str) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    found = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\s-]", "", title.lower()).strip().replace(" ", "-") for title in found}


def exists(path: str) -> bool:
    return Path(ROOT, path).exists()
