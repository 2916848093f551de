"""The processes that make forecasts, and the broker's side of them.

Rule 1: the broker's loop never waits. A thread writes pictures to the process and reads the ends; it wakes the loop.
Rule 2: a process is started when it is first needed, runs at the lowest priority, and ends with its input: when the
broker ends, however it ends, or when no forecast was wanted for `IDLE_S`.
Rule 3: the two sides exchange lines of JSON. Neither unpickles.
Rule 4: estimates have a process of their own, because they are for everybody. In the other one, the owner who has used
least of it comes first. What one forecast may take is bounded.
"""

import json
import os
import signal
import subprocess
import sys
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from random import Random
from threading import Condition, Thread, Timer
from time import monotonic, process_time, sleep
from types import FrameType
from typing import Any

from deskgrid.broker.model.forecaster import LATE, Json, Ticket
from deskgrid.broker.work.operations import LATER, pending
from deskgrid.scheduler.forecast.picture import Picture
from deskgrid.scheduler.forecast.rows import picture_of, rows_of

# The process ends when it was idle for so long. Seconds.
IDLE_S = 120.0
# Forecasts that wait; more are refused.
WAITING = 64
# A process that ends is awaited for so long before it is killed. Seconds.
END_S = 2.0

# A forecast that takes longer is given up, with the process. Seconds.
LIMIT_S = 60.0
# A forecast that takes more of the processor's time, or makes the process larger, fails. Seconds; bytes.
PROCESSOR_S = 10
MEMORY = 2**30

# How often the process looks whether the broker is still there. Seconds.
PARENT_S = 1.0

_Job = tuple[Picture, str, Json, Ticket]


class _PendingForecasts:
    """Forecasts that wait, by owner, and what those of each owner have taken since none waited, in seconds."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._used: defaultdict[str, float] = defaultdict(float)
        self._by_owner: dict[str, deque[_Job]] = {}
        self._closed = False

    def put(self, owner: str, job: _Job) -> bool:
        """Add one; False if too many wait."""
        with self._changed:
            if sum(map(len, self._by_owner.values())) >= WAITING:
                return False
            self._by_owner.setdefault(owner, deque()).append(job)
            self._changed.notify()
            return True

    def get(self, seconds: float | None) -> tuple[str, _Job] | None:
        """The next one, of the owner who has used least; None after so many seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._by_owner or self._closed, seconds)
            if not self._by_owner:
                return None
            owner = min(self._by_owner, key=self._used.__getitem__)
            its = self._by_owner.pop(owner)
            job = its.popleft()
            if its:
                self._by_owner[owner] = its
            return owner, job

    def used(self, owner: str, seconds: float) -> None:
        """A forecast of ``owner`` has taken so long."""
        with self._changed:
            if self._by_owner:
                self._used[owner] += seconds
            else:
                self._used.clear()

    def close(self) -> None:
        """Drop those that wait; there will be no more."""
        with self._changed:
            self._closed = True
            self._by_owner.clear()
            self._changed.notify()

    @property
    def closed(self) -> bool:
        """Whether there will be no more."""
        return self._closed


class Forecasts:
    """A `Forecaster` with two processes. ``wake``: called whenever a forecast is done, by another thread."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._estimates, self._questions = ForecastProcess(wake), ForecastProcess(wake)

    def submit(self, picture: Picture, seed: int, runs: int) -> Ticket:
        """See `Forecaster`."""
        return self._estimates.ask(picture, "ends", {"seed": seed, "runs": runs}, "")

    def ask(self, picture: Picture, what: str, args: Json, owner: str) -> Ticket:
        """See `Forecaster`."""
        return self._questions.ask(picture, what, args, owner)

    def close(self) -> None:
        """End both processes. Forecasts that wait are not made."""
        self._estimates.close()
        self._questions.close()


class ForecastProcess:
    """A process that makes one forecast after the other. ``wake``: as `Forecasts`."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._jobs = _PendingForecasts()
        self._thread: Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, picture: Picture, what: str, args: Json, owner: str) -> Ticket:
        """See `Forecaster`."""
        ticket = Ticket()
        if not self._jobs.put(owner, (picture, what, args, ticket)):
            ticket.failure, ticket.done = pending(f"{WAITING} forecasts", LATER), True
            return ticket
        if self._thread is None:
            self._thread = Thread(target=self._serve, name="deskgrid-forecasts", daemon=True)
            self._thread.start()
        return ticket

    def close(self) -> None:
        """End the process and the thread. Forecasts that wait are not made."""
        if self._thread is None:
            return
        self._jobs.close()
        process = self._process
        if process is not None:
            process.kill()
        self._thread.join()

    # --- the thread --------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        while not self._jobs.closed:
            found = self._jobs.get(IDLE_S if self._process else None)
            if found is None:
                self._end()
                continue
            owner, job = found
            begun = monotonic()
            self._carry_out(*job)
            self._jobs.used(owner, monotonic() - begun)
            self._wake()
        self._end()

    def _carry_out(self, picture: Picture, what: str, args: Json, ticket: Ticket) -> None:
        try:
            told = self._exchange(picture, what, args)
            ticket.cost_s, ticket.failure = float(told["cost_s"]), str(told["failure"])
            ticket.take(what, told["answer"])
        except Exception as error:  # whatever it is: without this thread nobody would have an answer again
            ticket.failure = f"the process that makes forecasts failed: {error!r}"
            self._end()
        ticket.done = True

    def _exchange(self, picture: Picture, what: str, args: Json) -> dict[str, Any]:
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        limit = Timer(LIMIT_S, process.kill)
        limit.start()
        try:
            for line in lines_of(picture, what, args):
                process.stdin.write(line)
            process.stdin.flush()
            answer: dict[str, Any] = json.loads(process.stdout.readline())
        finally:
            limit.cancel()
        return answer

    def _started(self) -> "subprocess.Popen[bytes]":
        if self._process is not None and self._process.poll() is not None:
            self._end()  # somebody has killed it
        if self._process is None:
            command = [sys.executable, "-m", __name__]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        for pipe in filter(None, (process.stdin, process.stdout)):
            with suppress(OSError):
                pipe.close()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


# --- both sides -------------------------------------------------------------------------------------------------------


def lines_of(picture: Picture, what: str, args: Json) -> Iterator[bytes]:
    """What is written for one forecast: several lines, so that no other thread has to wait for a long one."""
    for row in rows_of(picture):
        yield json.dumps(row).encode() + b"\n"
    yield json.dumps({"what": what, "args": args}).encode() + b"\n"


# --- the process ------------------------------------------------------------------------------------------------------


def main() -> None:
    """Make forecasts until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the broker ends it
    if hasattr(os, "nice"):
        os.nice(19)
    _limit_memory()
    Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    rows = []
    for line in sys.stdin.buffer:
        row = json.loads(line)
        if isinstance(row, list):
            rows.append(row)
            continue
        answer = _answer(rows, row["what"], row["args"])
        try:
            sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
            sys.stdout.buffer.flush()
        except OSError:  # the broker was killed: EPIPE, and EINVAL on Windows
            os._exit(1)
        rows = []


def _answer(rows: list[Any], what: str, args: Json) -> dict[str, Any]:
    """The answer to one question. If it fails, the next may go well."""
    from deskgrid.broker.forecasts.tasks import RUNS_LEAST, TASKS, fewer_runs  # here: the broker does not need them
    from deskgrid.scheduler.forecast.ahead import forecast

    begun, answer, failure = process_time(), None, ""
    try:
        with _limited_time():
            picture = picture_of(rows)
            if args["runs"] > RUNS_LEAST:
                before = process_time()
                forecast(picture, Random(args["seed"]), 1)
                args = fewer_runs(what, args, process_time() - before)
            answer = TASKS[what](picture, args)
    except (TimeoutError, MemoryError):
        failure = LATE
    except Exception as error:
        failure = f"{what}: {error!r}"
    return {"answer": answer, "failure": failure, "cost_s": process_time() - begun}


def _end_with(parent: int) -> None:
    """End when the broker has ended. The end of the input is seen only between two forecasts."""
    while os.getppid() == parent:
        sleep(PARENT_S)
    os._exit(0)


def _limit_memory() -> None:
    """From now on, what would need more memory than `MEMORY` fails with `MemoryError`, where there are such limits."""
    if sys.platform != "win32":
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_AS)
        limit = MEMORY if most == resource.RLIM_INFINITY else min(MEMORY, most)
        resource.setrlimit(resource.RLIMIT_AS, (limit, most))


@contextmanager
def _limited_time() -> Iterator[None]:
    """Raises `TimeoutError` once, when the block has taken `PROCESSOR_S`, where there are such timers."""
    if sys.platform == "win32":
        yield
    else:
        signal.signal(signal.SIGPROF, _too_long)
        signal.setitimer(signal.ITIMER_PROF, PROCESSOR_S)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0.0)


def _too_long(number: int, frame: FrameType | None) -> None:
    raise TimeoutError(LATE)


if __name__ == "__main__":
    main()
