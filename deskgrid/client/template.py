"""Makes templates, blobs of the data that all tasks of a bag share: a Python function with its source, or a command.

A template is a msgpack map, which workers unpack; the SHA-256 of its bytes identifies it.
"""

import hashlib
import io
import pickle
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgpack

from deskgrid.client.bundle import make_bundle
from deskgrid.errors import BagRejected, PicklingFailed
from deskgrid.wire import ARGUMENTS_LIMIT, FILES_LIMIT, NAME_BYTES, PAYLOAD_LIMIT, cut

# A pickled function depends on the minor version of Python, because byte code differs between minor versions.
PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"


@dataclass(frozen=True, slots=True)
class Template:
    """A blob and its digest. ``python``: the version of Python that can load it; None if any can."""

    digest: str
    python: str | None
    data: bytes = field(repr=False)


def pickle_function(function: Callable[..., Any]) -> bytes:
    """Pickle ``function``: by value what a worker cannot import. Raises `PicklingFailed`."""
    import cloudpickle  # here, because opening a Grid or attaching to a bag does not need it

    # For many calls, speed matters: functions that can be imported are pickled in C, in a fifth of the time.
    if not cloudpickle.list_registry_pickle_by_value():
        with suppress(Exception):
            pickled = pickle.dumps(function, pickle.HIGHEST_PROTOCOL)
            if b"__main__" not in pickled:
                return pickled
    buffer = io.BytesIO()
    try:
        cloudpickle.CloudPickler(buffer, protocol=pickle.HIGHEST_PROTOCOL).dump(function)
    except Exception as error:
        raise PicklingFailed(
            f"the function {name_of(function)} cannot be pickled, it or something it refers to: {error}"
        ) from error
    return buffer.getvalue()


def python_template(pickled: bytes, name: str, modules: Sequence[str] = (), inputs: bytes = b"") -> Template:
    """Make the template of the function ``name``, with the program's own modules as they are now.

    ``modules``: names of more of them that travel. ``inputs``: the digests of the trees that the function needs. Raises
    `BagRejected`.
    """
    bundle = make_bundle(modules)
    if len(bundle) > FILES_LIMIT:
        raise BagRejected(f"the program's own modules are {len(bundle):,} files; the limit is {FILES_LIMIT:,}")
    table = {"kind": "python", "python": PYTHON, "function": pickled, "bundle": bundle}
    if inputs:
        table["inputs"] = inputs
    return _template(table, PYTHON, f"the function {name}")


def command_template(argv: Sequence[str], inputs: bytes = b"", outputs: Sequence[str] | None = None) -> Template:
    """Make the template of a command line, in which "{}" stands for a task's text.

    ``inputs``: the digests of the trees that are unpacked in a folder of each task's own. ``outputs``: patterns of the
    files that it leaves there; None: there is no such folder.
    """
    if isinstance(argv, str) or not argv or not all(isinstance(part, str) for part in argv):
        raise BagRejected(f"a command is a list of texts, its program first, not {argv!r:.80}")
    if len(argv) > ARGUMENTS_LIMIT:
        raise BagRejected(f"the command line has {len(argv):,} words; the limit is {ARGUMENTS_LIMIT:,}")
    table: dict[str, Any] = {"kind": "command", "argv": list(argv)}
    if outputs is not None:
        table |= {"inputs": inputs, "outputs": list(outputs)}
    return _template(table, None, "the command line")


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of ``function`` for messages."""
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", None)
    return cut(str(name or repr(function)), NAME_BYTES)


def _template(table: dict[str, Any], python: str | None, what: str) -> Template:
    data: bytes = msgpack.packb(table)
    if len(data) > PAYLOAD_LIMIT:
        raise BagRejected(
            f"{what}, with what it refers to, has {len(data):,} bytes; the limit is {PAYLOAD_LIMIT:,}: "
            "pass large data as arguments, or read it from a file on the worker"
        )
    return Template(hashlib.sha256(data).hexdigest(), python, data)
