"""Which folder may import which: all imports point downwards. Each folder has its line in PLACES.

The reasons: the scheduler runs under two clocks, so it must not know about sockets. The broker never sees a user's
objects. A lab PC and a client need only the messages. Each loaded module makes a process start more slowly, so
``import deskgrid`` and the process that runs a task load as little as possible. Everything is imported below one name,
because the names of our folders are common words, and a module that is loaded under two names exists twice.
"""

import sys

import pytest

from tests.architecture.reading import files, imports, old_names, our_file, tree

# Each folder, or file that differs from its folder, and its kind.
PLACES = {
    "deskgrid/": "common",
    "deskgrid/__init__.py": "front door",
    "deskgrid/checkpoint.py": "front door",
    "deskgrid/classes.py": "lent",
    "deskgrid/errors.py": "client",
    "deskgrid/files.py": "lent",
    "deskgrid/gang.py": "front door",
    "deskgrid/lazy_commands.py": "options",
    "deskgrid/windows/ical.py": "calendars",
    "deskgrid/option_types.py": "options",
    "deskgrid/raised.py": "lent",
    "deskgrid/rebuilt.py": "pickler",
    "deskgrid/rebuilt_ctypes.py": "pickler",
    "deskgrid/rebuilt_types.py": "pickler",
    "deskgrid/client/": "client",
    "deskgrid/wire/dealer.py": "line",
    "deskgrid/screen/": "screen",
    "deskgrid/web/": "web",
    "deskgrid/cli/": "command line",
    "deskgrid/kit/": "command line",
    "scheduler/": "scheduler",
    "scheduler/__init__.py": "lent",
    "scheduler/parallel/__init__.py": "lent",
    "scheduler/parallel/speedup.py": "lent",  # the values that programs give, and that the scheduler reads
    "broker/": "server",
    "worker/": "worker",
    "worker/run/child.py": "child",
    "worker/run/job_object.py": "child",
    "worker/run/parent.py": "child",
    "worker/run/scope.py": "child",
    "worker/run/script.py": "child",
    "worker/run/shared.py": "child",
    "worker/run/start.py": "child",
    "sleepbench/": "benchmark",
    "papers/": "paper",
    "papers/tla/policies/": "paper's policy",
    "papers/rhap/policies/": "paper's policy",
    "papers/scojo_p/policies/": "paper's policy",
    "papers/cisne/policies/": "paper's policy",
    "benchmarks/": "benchmark",
    "tests/": "tests",
    "examples/": "example",
}

# Each kind: the kinds of our files that it may import, and the libraries. Standard ones are open to all.
MAY_IMPORT = {
    "common": (["common", "calendars"], ["msgpack"]),
    # The libraries of the extra "ical", which are loaded in a process of their own.
    "calendars": (["common"], ["icalendar", "recurring_ical_events"]),
    "line": (["common"], ["zmq"]),
    "scheduler": (["scheduler", "lent"], []),
    # By an entry point, as those of others: the scheduler knows no paper.
    "paper's policy": (["paper's policy", "scheduler"], []),
    "server": (["server", "scheduler", "lent", "line", "common"], ["msgpack", "zmq"]),
    "client": (["client", "lent", "pickler", "line", "common"], ["zmq", "msgpack", "cloudpickle", "rich"]),
    "screen": (["screen", "client", "common"], ["rich"]),
    "web": (["web", "client", "common"], []),
    "worker": (["worker", "child", "line", "common"], ["zmq", "apscheduler"]),
    "child": (["child"], ["cloudpickle", "msgpack"]),
    # What a program loads as well as its tasks, or the scheduler.
    "lent": ([], []),
    "pickler": (["pickler"], ["cloudpickle"]),
    "front door": (["client", "lent", "common"], []),
    # numpy comes with a bag: see examples/environment.py; mpi4py with the PCs of a lab that runs MPI programs.
    "example": (["front door"], ["numpy", "mpi4py"]),
    "options": (["common"], ["click"]),
    "command line": (
        [
            "command line",
            "options",
            "server",
            "scheduler",
            "client",
            "screen",
            "web",
            "worker",
            "benchmark",
            "paper",
            "lent",
            "line",
            "common",
        ],
        ["click", "rich"],
    ),
}
# These may import anything but what is above them.
FREE: dict[str, tuple[str, ...]] = {"tests": (), "paper": ("command line",), "benchmark": ("paper", "command line")}

# Files that know ZeroMQ: the three loops with their connections, what two of them share, and what makes and keeps keys.
ZMQ = {
    "broker/server.py",
    "broker/auth/keys.py",
    "broker/port/sockets.py",
    "deskgrid/wire/dealer.py",
    "deskgrid/client/link.py",
    "worker/agent.py",
    "worker/link.py",
}

# What the broker is handed is opaque to it: these kinds never unpickle.
NEVER_UNPICKLES = {"server", "scheduler", "common"}
PICKLES = {"pickle", "cloudpickle", "marshal", "shelve", "dill"}

FILES = files(*{place.split("/")[0] for place in PLACES})


def kind_of(file: str) -> str:
    """The kind of ``file``: by its own row in PLACES, or that of the nearest folder."""
    folders = ["/".join(file.split("/")[:depth]) + "/" for depth in range(file.count("/"), 0, -1)]
    kind = next((PLACES[place] for place in [file, *folders] if place in PLACES), None)
    assert kind, f"{file} has no place yet: add a line for it to PLACES in tests/architecture/test_imports.py"
    return kind


def breach(importer: str, name: str) -> str | None:
    """What is wrong with ``importer`` (a file) importing ``name``; None when it may."""
    kind, target, library = kind_of(importer), our_file(name), name.split(".")[0]
    if target is None and library == "zmq" and kind not in FREE and importer not in ZMQ:
        return "only " + ", ".join(sorted(ZMQ)) + " know ZeroMQ"
    if library in PICKLES and kind in NEVER_UNPICKLES:
        return f"a {kind} file never unpickles"
    if kind in FREE:
        return f"a {kind_of(target)} file is above it" if target and kind_of(target) in FREE[kind] else None
    ours, libraries = MAY_IMPORT[kind]
    if target is not None:
        other = kind_of(target)
        return None if other in ours else f"a {kind} file may not import a {other} file"
    allowed = library in sys.stdlib_module_names or library in libraries
    return None if allowed else f"a {kind} file may not import this library"


@pytest.mark.slow
def test_files_import_only_what_their_places_allow() -> None:
    found = [(file, *found, breach(file, found.name)) for file in FILES for found in imports(tree(file), file)]
    wrong = [f"{file}:{line} imports {name}: {why}" for file, line, name, why in found if why]
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
def test_files_name_ours_below_deskgrid_only() -> None:
    found = [f"{file}:{line} {name}" for file in FILES for line, name in old_names(tree(file), file)]
    assert not found, "put deskgrid before these:\n" + "\n".join(found)


@pytest.mark.parametrize("place", PLACES)
def test_each_place_in_the_table_exists(place: str) -> None:
    assert files(place), f"{place} is in PLACES, but there is no such Python file: remove or rename its line"


def test_a_new_folder_is_told_to_find_its_place() -> None:
    with pytest.raises(AssertionError, match=r"new/file\.py has no place yet: add a line"):
        kind_of("new/file.py")


@pytest.mark.parametrize(
    ("importer", "name"),
    [
        ("scheduler/model.py", "deskgrid.wire.Hello"),
        ("scheduler/model.py", "msgpack"),
        ("scheduler/policies/__init__.py", "deskgrid.papers.tla.policies.TLA"),
        ("papers/tla/policies/__init__.py", "deskgrid.papers.tla.clusters"),
        ("deskgrid/wire/codec.py", "deskgrid.scheduler.model"),
        ("deskgrid/wire/codec.py", "zmq"),
        ("broker/peers/sessions.py", "zmq.Poller"),
        ("broker/peers/sessions.py", "pickle.loads"),
        ("deskgrid/client/grid.py", "deskgrid.scheduler.model"),
        ("deskgrid/screen/watch.py", "zmq"),
        ("deskgrid/cli/front.py", "zmq"),
        ("sleepbench/cli/eta.py", "deskgrid.cli.base"),
        ("sleepbench/cli/eta.py", "deskgrid.papers.base"),
        ("papers/command.py", "deskgrid.cli.base"),
        ("worker/agent.py", "deskgrid.scheduler.model"),
        ("worker/agent.py", "cloudpickle"),
        ("worker/run/child.py", "deskgrid.wire"),
        ("worker/run/child.py", "zmq"),
        ("deskgrid/__init__.py", "deskgrid.scheduler.model"),
        ("examples/first.py", "deskgrid.wire"),
    ],
)
def test_what_the_house_forbids_is_a_breach(importer: str, name: str) -> None:
    assert breach(importer, name)


@pytest.mark.parametrize(
    ("importer", "name"),
    [
        ("scheduler/model.py", "deskgrid.scheduler.policies.pgs.PGS"),
        ("broker/server.py", "zmq"),
        ("broker/server.py", "deskgrid.broker"),
        ("broker/peers/sessions.py", "deskgrid.scheduler.model.Attempt"),
        ("deskgrid/cli/front.py", "deskgrid.windows.weekly"),
        ("worker/agent.py", "deskgrid.wire.Hello"),
        ("worker/run/child.py", "pickle"),
        ("sleepbench/live.py", "zmq"),
        ("papers/command.py", "deskgrid.sleepbench.cli.common"),
    ],
)
def test_what_the_house_allows_is_none(importer: str, name: str) -> None:
    assert breach(importer, name) is None


def test_no_files_import_each_other_in_a_circle() -> None:
    """Not even for types: who reads one of them would have to read them all."""
    its = {
        file: {other for found in imports(tree(file), file) if (other := our_file(found.name)) not in (None, file)}
        for file in files(*[place for place in PLACES if place not in ("tests/", "benchmarks/", "examples/")])
    }
    while leaves := [file for file, others in its.items() if not others & its.keys()]:
        for file in leaves:
            del its[file]
    while roots := its.keys() - set().union(*its.values()):
        for file in roots:
            del its[file]
    assert not its


def _rooms(place: str) -> dict[str, set[str]]:
    """The modules and folders of a folder, and which others of them each imports."""
    rooms: dict[str, set[str]] = {}
    for file in files(place):
        found = {our_file(each.name) or "" for each in imports(tree(file), file)}
        others = {_room(other) for other in found if other.startswith(place)}
        rooms.setdefault(_room(file), set()).update(others - {_room(file)})
    return rooms


def test_policies_know_no_state_and_what_handles_an_event_places_no_task() -> None:
    rooms = _rooms("scheduler/")
    assert "state" not in rooms["policies"] | rooms["queues"]
    assert "placing" not in rooms["handlers"]


@pytest.mark.parametrize("place", ["broker/", "scheduler/"])
def test_rooms_stand_on_each_other_and_in_no_circle(place: str) -> None:
    rooms = _rooms(place)
    while leaves := [room for room, others in rooms.items() if not others & rooms.keys()]:
        for room in leaves:
            del rooms[room]
    assert not rooms


def _room(file: str) -> str:
    """The room that a file is in."""
    return file.split("/")[1].removesuffix(".py")
