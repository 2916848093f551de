"""The process that makes forecasts: real processes, killed and refused."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from math import inf
from random import Random
from typing import Any

import pytest

from deskgrid.broker.forecasts import process as process_module
from deskgrid.broker.forecasts import tasks as tasks_module
from deskgrid.broker.forecasts.process import ForecastProcess, Forecasts, _PendingForecasts, lines_of
from deskgrid.broker.model.forecaster import LATE, Ticket
from deskgrid.scheduler.forecast.ahead import forecast
from deskgrid.scheduler.forecast.compare import ImaginedEnd
from deskgrid.scheduler.forecast.picture import (
    Durations,
    Group,
    Picture,
    PictureBag,
    PicturePC,
    PictureTask,
    PictureWindow,
)
from tests.forecaster import InlineForecaster
from tests.waiting import eventually

PICTURE = Picture(
    (PicturePC("a", (PictureWindow(0.0, 500.0), PictureWindow(600.0, inf)), 2, (PictureTask(7, 0, 3.0),)),),
    (PictureBag(7, (Group(40, Durations((5.0, 9.0, 30.0), 4)),), 50, 9),),
)

SEED = {"seed": 1, "runs": 1}
TWO_CHANGES = {**SEED, "bag": 7, "policy": "packing", "options": {}, "changes": [{}, {}]}


class Woken:
    """A forecast process, and how often it has called."""

    def __init__(self) -> None:
        self.calls = threading.Semaphore(0)
        self.process = ForecastProcess(self.calls.release)

    def made(self, picture: Picture = PICTURE, seed: int = 1) -> Ticket:
        ticket = self.process.ask(picture, "ends", {"seed": seed, "runs": 20}, "")
        assert self.calls.acquire(timeout=30.0)
        assert ticket.done
        return ticket


def stop(pid: int) -> None:
    """Stop a child, and wait until it has stopped: another thread of it may run on for a moment."""
    os.kill(pid, signal.SIGSTOP)
    os.waitpid(pid, os.WUNTRACED)


def answered(what: str, args: dict[str, Any]) -> dict[str, Any]:
    """What the process answers to a question, in this process."""
    rows = [json.loads(line) for line in lines_of(PICTURE, what, {})][:-1]
    return process_module._answer(rows, what, args)


@pytest.fixture
def woken() -> Iterator[Woken]:
    woken = Woken()
    yield woken
    woken.process.close()


def test_a_process_of_its_own_gives_the_same_answer(woken: Woken) -> None:
    ticket = woken.made(seed=3)
    assert ticket.ends == forecast(PICTURE, Random(3), 20) == InlineForecaster().submit(PICTURE, 3, 20).ends
    assert 0.0 < ticket.cost_s < 5.0
    assert woken.made(seed=4).ends != ticket.ends


def test_a_process_that_was_killed_is_replaced(woken: Woken, monkeypatch: pytest.MonkeyPatch) -> None:
    woken.made()
    first = woken.process._process
    assert first is not None
    first.kill()
    first.wait()
    assert woken.made().ends  # nobody noticed
    second = woken.process._process
    assert second is not None
    assert second is not first
    second.kill()
    second.wait()
    monkeypatch.setattr(second, "poll", lambda: None)  # it was alive when it was looked at
    ticket = woken.process.ask(PICTURE, "ends", SEED, "")
    assert woken.calls.acquire(timeout=30.0)
    assert "failed" in ticket.failure
    assert woken.made().ends


def test_a_picture_that_breaks_it_costs_only_its_own_answer(woken: Woken) -> None:
    broken = Picture(PICTURE.pcs, (PictureBag(8, (), 1),))  # it runs a task of a bag that is not there
    assert woken.made(broken).ends is None
    assert woken.made().ends


def test_no_process_is_a_failure(woken: Woken, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert "failed" in woken.made().failure


def test_an_idle_process_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_module, "IDLE_S", 0.05)
    woken = Woken()
    assert woken.made().ends
    assert eventually(lambda: woken.process._process is None)
    assert woken.made().ends
    woken.process.close()


def test_owners_take_turns() -> None:
    jobs = _PendingForecasts()
    for owner in ("mallory", "mallory", "mallory", "ann", "ben"):
        assert jobs.put(owner, (PICTURE, owner, {}, Ticket()))
    taken = [found[0] for _ in range(5) if (found := jobs.get(0.0)) is not None]
    assert taken == ["mallory", "ann", "ben", "mallory", "mallory"]
    assert jobs.get(0.0) is None


def test_who_has_used_least_comes_first() -> None:
    jobs = _PendingForecasts()

    def asked(*owners: str) -> None:
        for owner in owners:
            assert jobs.put(owner, (PICTURE, owner, {}, Ticket()))

    def next_one(seconds: float = 1.0) -> str:
        found = jobs.get(0.0)
        assert found is not None
        jobs.used(found[0], seconds)
        return found[0]

    asked("mallory", "mallory", "trudy", "trudy")
    assert [next_one(10.0), next_one(10.0)] == ["mallory", "trudy"]
    asked("ann", "ann", "ann")
    assert [next_one() for _ in range(5)] == ["ann", "ann", "ann", "mallory", "trudy"]
    asked("mallory", "ann")
    assert next_one() == "mallory", "what was used before nobody waited does not count"


def test_an_estimate_does_not_wait_for_a_question() -> None:
    calls = threading.Semaphore(0)
    with closing(Forecasts(calls.release)) as forecasts:
        assert forecasts.ask(PICTURE, "ends", SEED, "ann") is not None
        assert calls.acquire(timeout=30.0)
        busy = forecasts._questions._process
        assert busy is not None
        stop(busy.pid)
        asked, ticket = forecasts.ask(PICTURE, "ends", SEED, "ann"), forecasts.submit(PICTURE, 1, 1)
        assert calls.acquire(timeout=30.0)
        assert ticket.ends
        assert not asked.done
        os.kill(busy.pid, signal.SIGCONT)
        assert calls.acquire(timeout=30.0)
        assert asked.ends


def test_answers_for_which_there_is_no_time_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*anything: object) -> Iterator[ImaginedEnd]:
        yield ImaginedEnd(None, "first")
        while True:
            pass

    monkeypatch.setattr(process_module, "PROCESSOR_S", 0.2)
    monkeypatch.setattr(tasks_module, "compare", slow)
    answer = answered("compare", TWO_CHANGES)
    assert [row["why"] for row in answer["answer"]["rows"]] == ["first", LATE, LATE]
    assert not answer["failure"]


def test_answers_for_which_there_is_no_memory_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def large(*anything: object) -> Iterator[ImaginedEnd]:
        yield ImaginedEnd(None, "first")
        raise MemoryError

    monkeypatch.setattr(tasks_module, "compare", large)
    answer = answered("compare", TWO_CHANGES)
    assert [row["why"] for row in answer["answer"]["rows"]] == ["first", LATE, LATE]
    assert not answer["failure"]
    monkeypatch.setattr(tasks_module, "TASKS", {"compare": lambda *anything: [*large()]})
    assert answered("compare", TWO_CHANGES)["failure"] == LATE


@pytest.mark.parametrize("ready", range(4))
def test_an_estimate_is_made_of_the_runs_for_which_there_is_time(monkeypatch: pytest.MonkeyPatch, ready: int) -> None:
    def slow(*anything: object) -> Iterator[list[float]]:
        for run in range(ready):
            yield [float(run)]
        while True:
            pass

    monkeypatch.setattr(process_module, "PROCESSOR_S", 0.2)
    monkeypatch.setattr(tasks_module, "played", slow)
    answer = answered("ends", {"seed": 1, "runs": 5})
    if ready < tasks_module.ENDS_LEAST:
        assert (answer["answer"], answer["failure"]) == (None, LATE)
    else:
        assert (answer["answer"], answer["failure"]) == ({7: [float(run) for run in range(ready)]}, "")


def test_a_forecast_that_takes_too_long_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def spin(*anything: object) -> None:
        while True:
            pass

    monkeypatch.setattr(process_module, "PROCESSOR_S", 0.01)
    monkeypatch.setattr(tasks_module, "TASKS", {"spin": spin, "go": lambda *anything: 1})
    assert answered("spin", SEED)["failure"] == LATE
    monkeypatch.setattr(process_module, "PROCESSOR_S", 15)
    assert answered("go", SEED)["answer"] == 1


def test_the_process_ends_with_its_parent_also_in_the_middle_of_a_forecast() -> None:
    busy = f"import os, {process_module.__name__} as p, threading as t; t.Thread(target=p._end_with, "
    busy += "args=(os.getppid(),), daemon=True).start(); print(1, flush=True)\nwhile True: pass"
    parent = (
        "import subprocess, sys; c = subprocess.Popen([sys.executable, '-c', sys.argv[1]], stdout=subprocess.PIPE, "
        "stderr=sys.stderr); c.stdout.readline()"
    )
    # Its standard error is closed when the last of both has ended.
    subprocess.run([sys.executable, "-c", parent, busy], stderr=subprocess.PIPE, timeout=30.0, check=True)


def test_the_process_has_a_limit_of_memory() -> None:
    code = f"from {process_module.__name__} import _limit_memory as limit, MEMORY; limit(); bytes(MEMORY)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert b"MemoryError" in ended.stderr


def test_the_more_each_run_takes_the_fewer_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    args = {"seed": 1, "runs": 20}
    assert len(answered("ends", args)["answer"][7]) == 20
    monkeypatch.setattr(tasks_module, "RUNS_S", -1.0)
    assert len(answered("ends", args)["answer"][7]) == tasks_module.RUNS_LEAST


@pytest.mark.parametrize(("what", "runs"), [("ends", 40), ("compare", 10), ("advise", 5)])
def test_the_runs_of_a_question_are_shared_out_among_its_answers(what: str, runs: int) -> None:
    args = {"seed": 1, "runs": 60, "changes": [{}, {}, {}]}
    assert tasks_module.fewer_runs(what, args, 0.1)["runs"] == runs
    assert tasks_module.fewer_runs(what, args, 0.001)["runs"] == 60


def test_very_many_forecasts_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()
    monkeypatch.setattr(ForecastProcess, "_carry_out", lambda *anything: gate.wait(30.0))
    monkeypatch.setattr(process_module, "WAITING", 2)
    process = ForecastProcess(lambda: None)
    tickets = [process.ask(PICTURE, "ends", SEED, "") for _ in range(4)]
    assert tickets[-1].failure == "2 forecasts are pending already: retry later"
    gate.set()
    process.close()


def test_closing_ends_the_process_and_the_thread() -> None:
    woken = Woken()
    woken.process.close()
    woken.made()
    process, thread = woken.process._process, woken.process._thread
    assert process is not None
    assert thread is not None
    woken.process.close()
    assert process.poll() is not None
    assert not thread.is_alive()
