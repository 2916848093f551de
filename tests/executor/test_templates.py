"""A worker and its processes remember the templates that were used last; what jobs need is never forgotten."""

from collections.abc import Callable
from pathlib import Path

import pytest

from deskgrid.worker.run import executor as executor_module
from deskgrid.worker.run import process as process_module
from deskgrid.worker.run.templates import TEMPLATE_BYTES, Remembered
from tests.executor.rig import Rig, call, python_template, value

MIB = 2**20


def test_what_was_used_last_is_remembered_and_what_is_needed() -> None:
    known = Remembered(3 * (TEMPLATE_BYTES + 10))
    assert [known.add(name, 10) for name in "abc"] == [[], [], []]
    known.use("a")
    assert known.add("d", 10) == ["b"]
    assert known.add("d", 10) == [], "it was there already"
    assert known.add("e", 20, needed={"c"}) == ["a", "d"]
    assert [name in known for name in "abcde"] == [False, False, True, False, True]
    assert known.add("large", 10**6) == ["c", "e"], "the newest one always"


def holding(letter: str) -> bytes:
    """A template whose function holds a megabyte."""
    held = letter * MIB
    return python_template(lambda: held[:1])


def test_a_template_that_no_job_needs_is_forgotten_and_can_be_learned_again(
    rigs: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor_module, "TEMPLATES_BYTES", 2.5 * MIB)
    rig = rigs(slots=2)
    a, b = rig.know(holding("a")), rig.know(holding("b"))
    rig.executor.run(0, rig.jobs(a, call()))
    c = rig.know(holding("c"))
    assert [rig.executor.knows(digest) for digest in (a, b, c)] == [True, False, True], "a job needs the oldest"
    assert value(rig.until(1)[0]) == "a"
    rig.executor.know(b, holding("b"), needed={a})
    assert [rig.executor.knows(digest) for digest in (a, b, c)] == [True, True, False], "somebody else needs it"
    assert [value(*rig.run(digest, call())) for digest in (a, b)] == ["a", "b"]


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="only Linux tells the memory of a process like this")
def test_a_process_forgets_templates_too(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_module, "TOLD_BYTES", 20 * MIB)

    def resident(place: int) -> tuple[str, float]:
        held = bytes([place]) * (12 * MIB)

        def run() -> float:
            with open("/proc/self/statm") as file:
                return len(held[:1]) * int(file.read().split()[1]) * 4096 / 2**20

        (ended,) = rig.run(digest := rig.know(python_template(run)), call())
        return digest, value(ended)

    first, before = resident(0)
    *_, (_, after) = [resident(place) for place in range(1, 9)]
    assert after < before + 60, "nine times 12 MiB are 108"
    pid = rig.pid()
    (ended,) = rig.run(first, call())
    assert value(ended)
    assert rig.pid() == pid, "the same process was told it again"
