"""Writes what reference pages take from the program: ``python docs/written.py``, which `make docs` does.

In docs/reference/, a comment ``<!-- from the program: NAME -->`` begins such a part, and ``<!-- end -->`` ends it. NAME
is ``commands``, for what each command says of itself, or a name in Python. ``NAME: MEMBERS`` names the members of a
class that are shown; ``all`` stands for those of a module. Headings are one level below the heading before the comment.

Rule: the pages are complete in the repository. A test fails if they are not what this program would write.
"""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import click
import griffe

from deskgrid.cli.front import COMMANDS, main
from deskgrid.lazy_commands import LazyCommand

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("docs/reference/python.md", "docs/reference/command-line.md")
_PART = re.compile(r"(<!-- from the program: ([\w.]+)(?:: ([\w, ]+))? -->\n).*?(?=<!-- end -->)", re.DOTALL)
_HEADING = re.compile(r"^(#+) ", re.MULTILINE)
# Classes whose objects people get, and do not make.
_GIVEN = ("Bag", "Shared")
# The columns of help texts and of signatures.
COLUMNS = 100


def written(text: str) -> str:
    """Return a page with the parts that come from the program as they are now."""
    found, done = "", 0
    for part in _PART.finditer(text):
        found += text[done : part.start()]
        level = len(_HEADING.findall(re.sub(r"^```.*?^```$", "", found, flags=re.DOTALL | re.MULTILINE))[-1]) + 1
        lines = commands(level) if part[2] == "commands" else described(part[2], part[3], level)
        found += part[1] + "".join(f"\n{line}" for line in lines).lstrip("\n") + "\n"
        done = part.end()
    return found + text[done:]


# --- commands --------------------------------------------------------------------------------------------------------


def commands(level: int) -> Iterator[str]:
    """What each command says of itself, in the order of `deskgrid --help`."""
    top = click.Context(main, info_name="deskgrid", terminal_width=COLUMNS, **main.context_settings)
    for heading, entries in COMMANDS.items():
        yield from (f"{'#' * level} {heading}", "")
        for name, *_ in entries:
            yield from _command(main.commands[name], name, top, level + 1)


def _command(command: click.Command, name: str, parent: click.Context, level: int) -> Iterator[str]:
    """A command's help, and that of those below it."""
    command = command.load() if isinstance(command, LazyCommand) else command
    vars(command)["_help_option"] = None  # click keeps it as it was when the command was called first, by whomever
    context = click.Context(command, parent=parent, info_name=name, terminal_width=COLUMNS)
    yield from (f"{'#' * level} {context.command_path}", "", "```text", command.get_help(context), "```", "")
    for below, its in command.commands.items() if isinstance(command, click.Group) else ():
        yield from _command(its, below, context, level)


# --- Python ----------------------------------------------------------------------------------------------------------


@cache
def _package(name: str) -> griffe.Object:
    found = griffe.load(name, search_paths=[str(ROOT)])
    assert isinstance(found, griffe.Object)
    return found


def _find(name: str) -> Any:
    """Find where a name is defined: it may be imported from a room that lies beside deskgrid/."""
    first, _, rest = name.removeprefix("deskgrid.").partition(".")
    found = _package(first)[rest] if (ROOT / first).is_dir() else _package("deskgrid")[name.removeprefix("deskgrid.")]
    return _find(found.target_path) if isinstance(found, griffe.Alias) else found


def described(name: str, members: str | None, level: int) -> Iterator[str]:
    """What a name in Python is: its signature, its docstring, and its members."""
    found = _find(name)
    if found.is_module:
        yield from (_docstring(found), "")
        shown = [each for key, each in found.members.items() if not key.startswith("_") and not each.is_alias]
        for each in shown:
            if each.is_class or each.is_function:
                yield from _object(each, level)
        return
    yield from _object(found, level)
    for member in (members or "").split(", ") if members else ():
        yield from _object(found[member], level + 1)


def _object(found: Any, level: int) -> Iterator[str]:
    yield from (f"{'#' * level} {found.name}", "", "```text", *_signature(found), "```", "")
    yield from (_docstring(found), "")
    made = found.is_class and found.name not in _GIVEN
    if made and "__init__" in found.members and (more := _docstring(found["__init__"])):
        yield from (more, "")


def _docstring(found: Any) -> str:
    return "" if found.docstring is None else str(found.docstring.value)


def _signature(found: Any) -> Iterator[str]:
    """How something is written where it is used: wrapped if it is long."""
    if found.is_attribute or "property" in found.labels:
        yield f"{found.name}: {found.annotation}"
        return
    word, parameters, returns = "class ", list[str](), ""
    bases = [str(base) for base in found.bases] if found.is_class else []
    if bases and bases[0] == "TypedDict":
        yield f"class {found.name}(TypedDict)"
        yield from (f"    {name}: {each.annotation}" for name, each in found.members.items() if each.is_attribute)
        return
    if found.is_function:
        word, returns = "", f" -> {found.returns}"
    if found.name in _GIVEN:
        yield f"class {found.name}"
        return
    if not found.is_class or "__init__" in found.members or "dataclass" in found.labels:
        parameters = [*_parameters(found.parameters)]
    whole = f"{word}{found.name}({', '.join(parameters)}){returns}"
    if len(whole) <= COLUMNS:
        yield whole
        return
    yield f"{word}{found.name}("
    yield from (f"    {parameter}," for parameter in parameters)
    yield f"){returns}"


def _parameters(parameters: griffe.Parameters) -> Iterator[str]:
    """Yield the parameters as in a definition, without self."""
    keyword = griffe.ParameterKind.keyword_only
    stars = {griffe.ParameterKind.var_positional: "*", griffe.ParameterKind.var_keyword: "**"}
    kinds = [each.kind for each in parameters]
    for number, each in enumerate(parameters):
        if number == 0 and each.name in ("self", "cls"):
            continue
        if each.kind is keyword and griffe.ParameterKind.var_positional not in kinds and keyword not in kinds[:number]:
            yield "*"
        only = griffe.ParameterKind.positional_only
        if number and kinds[number - 1] is only and each.kind is not only:
            yield "/"
        star = stars.get(each.kind, "")
        default = "" if star or each.default is None else f" = {each.default}"
        yield f"{star}{each.name}" + (f": {each.annotation}" if each.annotation is not None else "") + default


if __name__ == "__main__":
    for page in PAGES:
        path = ROOT / page
        path.write_text(written(path.read_text("utf-8")), "utf-8")
