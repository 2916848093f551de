"""Makes templates, blobs of the data that all tasks of a bag share: a Python function with its source, or a command.

A template is a msgpack map, which workers unpack; the SHA-256 of its bytes identifies it.
"""

import hashlib
import os
import pickle
import signal as signals
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any

import msgpack

from deskgrid.client.by_value import has_to_travel_by_value, pickle_by_value
from deskgrid.client.generators import warn_of_generators
from deskgrid.client.given import check, texts
from deskgrid.client.refusals import HEAVY_BYTES, not_picklable, warn_of_size
from deskgrid.errors import BagRejected
from deskgrid.wire import (
    ARGUMENTS_LIMIT,
    EXIT_CODE_LIMIT,
    NAME_BYTES,
    PAYLOAD_LIMIT,
    Environment,
    Kind,
    cut,
)

# A pickled function depends on the minor version of Python, because byte code differs between minor versions.
PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"


@dataclass(frozen=True, slots=True)
class Template:
    """A blob and its digest."""

    digest: str
    data: bytes = field(repr=False)


def pickle_function(function: Callable[..., Any]) -> bytes:
    """Pickle ``function``: by value what a worker cannot import. Raises `PicklingFailed`."""
    import cloudpickle  # here, because opening a Grid or attaching to a bag does not need it

    warn_of_generators(function, name_of(function))
    # For many calls, speed matters: functions that can be imported are pickled in C, in a fifth of the time.
    importable = getattr(function, "__module__", None) != "__main__"
    if importable and not cloudpickle.list_registry_pickle_by_value():
        with suppress(Exception):
            pickled = pickle.dumps(function, pickle.HIGHEST_PROTOCOL)
            if not has_to_travel_by_value(pickled):
                return pickled
    try:
        pickled = pickle_by_value(function)
    except Exception as error:
        name = name_of(function)
        raise not_picklable(f"the function {name}", {name: function}, error) from error
    if len(pickled) >= HEAVY_BYTES:
        warn_of_size(function, name_of(function), len(pickled))
    return pickled


def python_template(
    pickled: bytes,
    name: str,
    bundle: Mapping[str, bytes] = MappingProxyType({}),
    inputs: bytes = b"",
    environment: Environment | None = None,
    *,
    source: bytes = b"",
    classes: bytes = b"",
    lines: Mapping[str, bytes] = MappingProxyType({}),
) -> Template:
    """Make the template of the function ``name``, with the program's own modules in ``bundle``.

    ``inputs``: the digests of the trees that the function needs. ``source``: of a tree that has the modules instead.
    ``classes``: those of the script that arguments name, pickled. ``lines``: of the script, for tracebacks. Raises
    `BagRejected`.
    """
    table = _begun("python", environment)
    table |= {"python": PYTHON, "function": pickled, "bundle": dict(bundle)}
    if source:
        table["source"] = source
    if inputs:
        table["inputs"] = inputs
    if classes:
        table["classes"] = classes
    if lines:
        table["lines"] = dict(lines)
    return _template(table, f"the function {name}")


def _begun(kind: Kind, environment: Environment | None) -> dict[str, Any]:
    """Return the first entries of a template, where the broker finds them."""
    return {"kind": kind} if environment is None else {"kind": kind, "environment": environment.packed()}


def checked_argv(argv: Sequence[str]) -> Sequence[str]:
    """Return a command line. Raises `BagRejected`."""
    given: Any = argv  # what a program gives may be of any type
    if not isinstance(given, list | tuple) or not given or not all(isinstance(part, str) for part in given):
        raise BagRejected(f"a command is a list of texts, its program first, not {argv!r:.80}")
    return argv


def command_template(
    argv: Sequence[str],
    inputs: bytes = b"",
    outputs: Sequence[str] | None = None,
    saving: Mapping[str, object] = MappingProxyType({}),
    environment: Environment | None = None,
) -> Template:
    """Make the template of a command line, in which "{}" stands for a task's text.

    ``inputs``: the digests of the trees that are unpacked in a folder of each task's own. ``outputs``: patterns of the
    files that it leaves there; None: there is no such folder. ``saving``: what `checked_saving` returns.
    """
    checked_argv(argv)
    if len(argv) > ARGUMENTS_LIMIT:
        raise BagRejected(f"the command line has {len(argv):,} words; the limit is {ARGUMENTS_LIMIT:,}")
    table = _begun("command", environment) | {"argv": [_word(number, part) for number, part in enumerate(argv)]}
    if outputs is not None:
        table |= {"inputs": inputs, "outputs": list(outputs)}
    return _template(table | dict(saving), "the command line")


def _word(number: int, text: str) -> str | bytes:
    """Return a word of a command as a template has it: one with lone surrogates, as in file names, as its bytes."""
    if "\0" in text:
        raise BagRejected(f"word {number} of the command has a NUL character, which no command line can hold")
    try:
        data = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise BagRejected(f"word {number} of the command has a character that stands for no byte: {error}") from error
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def checked_saving(patterns: Sequence[str], signal: str = "USR1", exit_code: int = 85) -> dict[str, object]:
    """Check how a command saves, and return it as a template has it; nothing without ``patterns``.

    ``patterns``: of the files that it saves; ``signal``: tells it to save; ``exit_code``: with it, it ends a piece.
    Raises `BagRejected`.
    """
    patterns = [pattern.rstrip("/") or pattern for pattern in checked_texts("checkpoint", patterns, "state/*")]
    for pattern in patterns:
        if not _stays_below(pattern):
            raise BagRejected(
                f"{pattern!r:.200} is not a pattern for files in the folder of the task, such as 'state/*'"
            )
    check("checkpoint_signal", signal, str, "a name such as USR1 or TERM")
    if not (signal.isalnum() and signal.isupper()):
        raise BagRejected(f"checkpoint_signal is a name such as USR1 or TERM, not {signal!r:.80}")
    name = signal.removeprefix("SIG")
    if os.name == "posix" and not hasattr(signals, f"SIG{name}"):  # other systems do not know the signals of the PCs
        raise BagRejected(f"there is no signal {signal:.80}: give a name such as USR1 or TERM")
    if name in ("KILL", "STOP"):
        raise BagRejected(f"no program can handle the signal {name}: give another one, such as USR1 or TERM")
    if type(exit_code) is not int or not 1 <= exit_code <= EXIT_CODE_LIMIT:
        raise BagRejected(f"checkpoint_exit is a number from 1 to {EXIT_CODE_LIMIT}, not {exit_code!r:.80}")
    if not patterns:
        return {}
    return {"checkpoint": list(patterns), "signal": name, "exit": exit_code}


def checked_texts(option: str, values: Sequence[str], example: str) -> Sequence[str]:
    """Return the value of an option that is a list of texts. Raises `BagRejected`."""
    return texts(option, values, f'a list of texts, such as ["{example}"]')


def _stays_below(pattern: str) -> bool:
    """Whether a pattern names files below the folder it is used in, on any system, as workers check it."""
    place = PurePosixPath(pattern)
    known = str(place) == pattern and bool(place.parts) and not set(pattern) & set("\\:\0")
    return known and ".." not in place.parts and not place.is_absolute()


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of ``function`` for people: what it is called, and where if it is called nothing."""
    if isinstance(function, partial):
        return cut(f"partial({name_of(function.func)})", NAME_BYTES)
    own = getattr(function, "__qualname__", None) or getattr(function, "__name__", None)
    name = str(own or f"a {type(function).__qualname__}").replace("<locals>.", "")
    if name.endswith("<lambda>") and (code := getattr(function, "__code__", None)) is not None:
        name = f"lambda at {os.path.basename(code.co_filename)}:{code.co_firstlineno}"
    return cut(name, NAME_BYTES)


def _template(table: dict[str, Any], what: str) -> Template:
    data: bytes = msgpack.packb(table)
    if len(data) > PAYLOAD_LIMIT:
        raise BagRejected(
            f"{what}, with what it refers to, has {len(data):,} bytes; the limit is {PAYLOAD_LIMIT:,}: "
            "pass large data as arguments, or read it from a file on the worker"
        )
    return Template(hashlib.sha256(data).hexdigest(), data)
