"""Environments in templates: what a broker and a worker read of them, and which build a PC can use."""

import os
import platform
import sys
from collections.abc import Callable
from typing import Any

import msgpack
import pytest

from deskgrid.wire import (
    BUILDS_LIMIT,
    ENVIRONMENT_BYTES,
    LARGE_BYTES,
    NAME_BYTES,
    Build,
    Environment,
    System,
    TemplateRefused,
    payload_of,
    read_template,
    template_environment,
    this_system,
)

OLD = Build("3.12", "linux_x86_64", 2, 28, b"o" * 32, 72_000_000, 256_000_000)
NEW = OLD._replace(minor=35, tree=b"n" * 32)
WINDOWS = Build("3.12", "win_amd64", 0, 0, b"w" * 32, 70_000_000, 250_000_000)
NUMPY = Environment("numpy==2.4.6", (OLD, NEW, WINDOWS))
PC = System("3.12", "linux_x86_64", 2, 31)


def packed(environment: object, *, first: bool = True, rest: bytes = b"") -> bytes:
    begin, end = {"kind": "command"}, {"argv": ["run"], "python": "", "function": rest}
    entry = {"environment": environment}
    data: bytes = msgpack.packb(begin | entry | end if first else begin | end | entry)
    return data


def test_an_environment_is_read_as_it_was_made() -> None:
    data = packed(NUMPY.packed())
    assert template_environment(data) == NUMPY
    assert read_template(data)["environment"] == NUMPY


def test_the_broker_reads_only_the_beginning_of_a_large_template() -> None:
    most = Environment(
        "x" * NAME_BYTES,
        tuple(OLD._replace(minor=n, platform=f"linux_{'x' * 32}", size=2**60) for n in range(BUILDS_LIMIT)),
    )
    data = packed(most.packed(), rest=bytes(2 * LARGE_BYTES))
    assert len(msgpack.packb(most.packed())) <= ENVIRONMENT_BYTES
    assert template_environment(payload_of(data)) == most


@pytest.mark.parametrize(
    "data", [b"\x81\xa4kind\xa7command", msgpack.packb({"kind": "python", "bundle": {}, "python": ""})]
)
def test_most_templates_have_none(data: bytes) -> None:
    assert template_environment(data) is None


def test_an_environment_that_the_broker_would_not_see_is_refused() -> None:
    with pytest.raises(TemplateRefused, match="where the broker looks"):
        read_template(packed(NUMPY.packed(), first=False))


def columns(**changed: Any) -> list[object]:
    return Environment("x", (OLD._replace(**changed),)).packed()


@pytest.mark.parametrize(
    "entry",
    [
        1,
        [],
        NUMPY.packed()[:-1],
        [*NUMPY.packed(), []],
        ["x", *([] for _ in Build._fields)],
        ["x", *(["3.12"], *([] for _ in Build._fields[1:]))],
        ["x", *([[1]] * len(Build._fields))],
        [1, *NUMPY.packed()[1:]],
        ["x" * (NAME_BYTES + 1), *NUMPY.packed()[1:]],
        Environment("x", (OLD, OLD)).packed(),
        Environment("x", tuple(OLD._replace(minor=n) for n in range(BUILDS_LIMIT + 1))).packed(),
        columns(python="three"),
        columns(platform="../etc"),
        columns(platform="linux_" + "x" * 33),
        columns(major=-1),
        columns(minor=10_000),
        columns(tree=b"o" * 31),
        columns(tree=b"o" * 33),
        columns(size=-1),
        columns(unpacked=2**63),
        columns(unpacked=1.5),
    ],
)
def test_what_is_no_environment_is_refused(entry: object) -> None:
    for read in (read_template, template_environment):
        with pytest.raises(TemplateRefused):
            read(packed(entry))


def test_a_template_that_ends_in_its_environment_is_refused() -> None:
    with pytest.raises(TemplateRefused):
        template_environment(packed(NUMPY.packed())[:200])


# --- systems ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("system", "build"),
    [
        (PC, OLD),
        (PC._replace(minor=35), NEW),
        (PC._replace(major=3, minor=0), NEW),
        (PC._replace(minor=17), None),
        (PC._replace(python="3.13"), None),
        (PC._replace(platform="linux_aarch64"), None),
        (System("3.12", "win_amd64", 0, 0), WINDOWS),
    ],
)
def test_a_pc_uses_the_newest_build_that_it_can(system: System, build: Build | None) -> None:
    assert NUMPY.build_for(system) == build


def test_systems_are_described_to_people() -> None:
    assert str(PC) == "Python 3.12 on linux_x86_64 (glibc 2.31)"
    assert str(System("3.12", "macosx_arm64", 14, 5)) == "Python 3.12 on macosx_arm64 (macOS 14.5)"
    assert str(WINDOWS.system) == "Python 3.12 on win_amd64"


def test_this_machine_can_use_what_was_chosen_for_it() -> None:
    here = this_system()
    assert here.can_use(here)
    assert here.python == f"{sys.version_info[0]}.{sys.version_info[1]}"
    build = Build(*here, bytes(32), 1, 1)
    assert template_environment(packed(Environment("here", (build,)).packed())) is not None


def raising(error: Exception) -> Callable[[str], str]:
    def confstr(_name: str) -> str:
        raise error

    return confstr


@pytest.mark.parametrize(
    ("system", "machine", "libc", "found"),
    [
        ("linux", "x86_64", lambda _name: "glibc 2.36", ("linux_x86_64", 2, 36)),
        ("linux", "aarch64", lambda _name: None, ("musllinux_aarch64", 1, 2)),
        ("linux", "x86_64", raising(ValueError()), ("musllinux_x86_64", 1, 2)),
        ("darwin", "arm64", None, ("macosx_arm64", 14, 0)),
        ("win32", "AMD64", None, ("win_amd64", 0, 0)),
    ],
)
def test_each_platform_is_called_what_its_wheels_call_it(
    system: str, machine: str, libc: Any, found: tuple[str, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(platform, "mac_ver", lambda: ("14", ("", "", ""), machine))
    monkeypatch.setattr(os, "confstr", libc, raising=False)
    assert this_system()[1:] == found


def test_a_32_bit_python_on_windows_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(sys, "maxsize", 2**31 - 1)
    assert this_system().platform == "win32"
