"""Code that decides reads no clock: `now` is an argument. So a test or the simulator can run it at any speed."""

import pytest

from tests.architecture.reading import files, imports, impurities, our_file, tree

# Pure are these, and whatever of ours they import.
PURE = (
    "scheduler/",
    "papers/tla/policies/",
    "papers/rhap/policies/",
    "papers/scojo_p/policies/",
    "papers/cisne/policies/",
    "broker/peers/sessions.py",
    "worker/session.py",
    "worker/windows/uptime.py",
    "deskgrid/windows/weekly.py",
)


def with_what_they_import(roots: tuple[str, ...]) -> list[str]:
    """``roots`` and every file of ours they lead to."""
    known: set[str] = set()
    to_read = list(roots)
    while to_read:
        file = to_read.pop()
        if file not in known:
            known.add(file)
            to_read += [target for _, name in imports(tree(file), file) if (target := our_file(name))]
    return sorted(known)


@pytest.mark.parametrize("place", PURE)
def test_each_pure_place_exists(place: str) -> None:
    assert files(place), f"{place} is in PURE, but there is no such Python file: remove or rename its line"


def test_pure_files_touch_no_clock_chance_socket_or_thread() -> None:
    pure = with_what_they_import(files(*PURE))
    found = [f"{file}:{line} {name}" for file in pure for line, name in impurities(tree(file))]
    assert not found, "not pure (PURE in tests/architecture/test_purity.py):\n" + "\n".join(found)


def test_what_a_pure_file_imports_has_to_be_pure_too() -> None:
    assert "scheduler/model.py" in with_what_they_import(("scheduler/events.py",))
