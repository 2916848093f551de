"""The process that makes forecasts, and the broker's side of it.

Rule 1: the broker's loop never waits. A thread writes pictures to the process and reads the ends; it wakes the loop.
Rule 2: the process is started when it is first needed, runs at the lowest priority, and ends with its input: when the
broker ends, however it ends, or when no forecast was wanted for `IDLE_S`.
Rule 3: the two sides exchange lines of JSON. Neither unpickles.
"""

import json
import os
import queue
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import Thread, Timer
from time import process_time
from typing import Any

from deskgrid.broker.forecasts.runner import Ticket
from deskgrid.broker.forecasts.tasks import TASKS, Json
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

_Job = tuple[Picture, str, Json, Ticket]


class ForecastProcess:
    """A `Forecaster` with a process of its own. ``wake``: called whenever a forecast is done, by another thread."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._jobs: queue.Queue[_Job | None] = queue.Queue(WAITING)
        self._thread: Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def submit(self, picture: Picture, seed: int, runs: int) -> Ticket:
        """See `Forecaster`."""
        return self.ask(picture, "ends", {"seed": seed, "runs": runs})

    def ask(self, picture: Picture, what: str, args: Json) -> Ticket:
        """See `Forecaster`."""
        ticket = Ticket()
        try:
            self._jobs.put_nowait((picture, what, args, ticket))
        except queue.Full:
            ticket.failure, ticket.done = f"{WAITING} forecasts wait already", True
            return ticket
        if self._thread is None:
            self._thread = Thread(target=self._serve, name="deskgrid-forecasts", daemon=True)
            self._thread.start()
        return ticket

    def close(self) -> None:
        """End the process and the thread. Forecasts that wait are not made."""
        if self._thread is None:
            return
        with suppress(queue.Empty):
            while True:
                self._jobs.get_nowait()
        self._jobs.put(None)
        process = self._process
        if process is not None:
            process.kill()
        self._thread.join()

    # --- the thread --------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=IDLE_S if self._process else None)
            except queue.Empty:
                self._end()
                continue
            if job is None:
                break
            self._carry_out(*job)
            self._wake()
        self._end()

    def _carry_out(self, picture: Picture, what: str, args: Json, ticket: Ticket) -> None:
        try:
            told = self._exchange(picture, what, args)
            ticket.cost_s, ticket.failure = float(told["cost_s"]), str(told["failure"])
            ticket.take(what, told["answer"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
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
        if self._process is None:
            command = [sys.executable, "-m", __name__]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):
                pipe.close()  # type: ignore[union-attr]
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
    rows = []
    for line in sys.stdin.buffer:
        row = json.loads(line)
        if isinstance(row, list):
            rows.append(row)
            continue
        answer = _answer(rows, row["what"], row["args"])
        sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
        sys.stdout.buffer.flush()
        rows = []


def _answer(rows: list[Any], what: str, args: Json) -> dict[str, Any]:
    """The answer to one question. If it fails, the next may go well."""
    begun, answer, failure = process_time(), None, ""
    try:
        answer = TASKS[what](picture_of(rows), args)
    except Exception as error:
        failure = f"{what}: {error!r}"
    return {"answer": answer, "failure": failure, "cost_s": process_time() - begun}


if __name__ == "__main__":
    main()
