"""What options of a worker say: sizes, resources, labels, Pythons, ports."""

import re
import sys
from collections.abc import Sequence

import click

from deskgrid.resources import GPU, read_amounts, resources_of
from deskgrid.wire import LABEL, LABELS_LIMIT, MEMORY_LIMIT, PYTHONS_LIMIT, this_system

# Bytes of memory of a task's process that holds little more than Python.
TASK_MEMORY_LEAST = 64 * 1024**2


def disk_size(text: str) -> int:
    """Return the bytes of a size like 512M or 1.5G (by 1024); raises BadParameter."""
    found = re.fullmatch(r"(\d{1,18}(?:\.\d+)?) ?([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if found is None:
        raise click.BadParameter(f"{text!r} is not a size like 512M or 2G")
    return int(float(found[1]) * 1024 ** " KMGT".index(found[2].upper() or " "))


def memory_size(text: str, *, of_pc: bool = False) -> int:
    """Return the bytes of memory in a size like 512M; raises BadParameter. ``of_pc``: not a limit of a process."""
    size = disk_size(text)
    if 0 < size < TASK_MEMORY_LEAST:
        raise click.BadParameter(f"{text!r} is too little: Python itself needs {TASK_MEMORY_LEAST // 1024**2} MiB")
    if size > MEMORY_LIMIT:
        raise click.BadParameter(f"{text!r} is more than any PC has")
    if size and not of_pc and sys.platform == "win32":
        raise click.BadParameter("this limit does not work on Windows")
    return size


def worker_labels(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the labels of a worker, sorted; raises BadParameter."""
    labels = tuple(sorted({text.strip() for text in texts}))
    for label in labels:
        if re.fullmatch(LABEL, label) is None:
            raise click.BadParameter(f"{label!r} is not a label: 1 to 64 letters, digits or . _ = -, like gpu")
    if len(labels) > LABELS_LIMIT:
        raise click.BadParameter(f"a worker has at most {LABELS_LIMIT} labels")
    return labels


def worker_resources(texts: Sequence[str]) -> tuple[tuple[str, ...], bool]:
    """Return the resources of a worker as they travel, and whether its graphics cards are among them.

    Raises BadParameter.
    """
    try:
        amounts = read_amounts(texts)
        return resources_of(amounts, none=True), GPU in amounts
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def worker_pythons(given: Sequence[str]) -> dict[str, str]:
    """Return the Pythons that tasks can have beside that of the worker, path by version; raises BadParameter."""
    if not given:
        return {}
    from deskgrid.worker.environments.interpreters import NotAnInterpreter, find_interpreters

    try:
        found = find_interpreters(given, this_system().python)
    except NotAnInterpreter as error:
        raise click.BadParameter(str(error)) from error
    if len(found) >= PYTHONS_LIMIT:
        raise click.BadParameter(f"a worker has at most {PYTHONS_LIMIT} versions of Python, with its own")
    return found


def port_range(text: str) -> tuple[int, int]:
    """Return the least and the most of ports like 40000-40999; raises BadParameter."""
    found = re.fullmatch(r"(\d{1,5})-(\d{1,5})", text.strip())
    if found is None or not 1024 <= int(found[1]) <= int(found[2]) <= 65_535:
        raise click.BadParameter(f"{text!r} is not a range of ports from 1024 to 65535, like 40000-40999")
    return int(found[1]), int(found[2])
