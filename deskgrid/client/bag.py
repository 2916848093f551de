"""A bag on the broker: a handle with which any process can collect its results.

A handle stores nothing per task, except the items if they were given as a collection. Each loop over the results
fetches them again from the start, in the order in which tasks end. The broker keeps them until `forget`.
"""

import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar, overload

from deskgrid import wire
from deskgrid.client.downloads import ResultFiles
from deskgrid.client.eta import Eta
from deskgrid.client.following import Following, LogPiece
from deskgrid.client.given import check
from deskgrid.client.interrupts import Interruptible
from deskgrid.client.link import Link
from deskgrid.client.logs import TaskLog
from deskgrid.client.payload import Raised, add_note, value_of
from deskgrid.client.progress import Meter, Progress
from deskgrid.client.replies import ANSWER_S, ORDER_S, SLICE_S, Waiter, ask, results_of
from deskgrid.client.submission import Seconds, checked_seconds
from deskgrid.client.whatif import FORECAST_S, Advice
from deskgrid.errors import RequestFailed

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")
ReadT = TypeVar("ReadT")
Errors = Literal["raise", "return"]

# A position after every possible result: a `Watch` from here is answered only when the bag has ended.
_THE_END = 2**62
# Time limit for asking the progress for the bar, so that the bar does not hold up the call that shows it. Seconds.
_GLANCE_S = 1.0


class Bag(Generic[ItemT, ResultT]):
    """A set of independent tasks on the grid; made by `Grid.bag`, `Grid.command` and `Grid.attach`.

    A bag goes on without this process; another process can attach to its ``id``. ``note``: a remark of the broker when
    it accepted the bag, such as that a task is longer than any known window, or empty. ``kind``: of its tasks, "python"
    or "command".
    """

    def __init__(
        self,
        link: Link,
        bag_id: str,
        name: str,
        total: int,
        *,
        items: Sequence[Any] | None,
        note: str,
        kind: wire.Kind,
        owner: object,
    ) -> None:
        self.id = bag_id
        self.name = name
        self.note = note
        self.kind = kind
        self._link = link
        self._files = ResultFiles(link, bag_id)
        self._total = total
        self._items = items
        self._owner = owner  # the Grid, which would close the link if it were garbage-collected
        # Numbers of abandoned requests for the end of the bag. The broker still has these requests, so the numbers are
        # reused: otherwise each `wait` with a timeout would leave one more request at the broker.
        self._waited: deque[int] = deque()

    def __len__(self) -> int:
        return self._total

    def __repr__(self) -> str:
        tasks = "1 task" if self._total == 1 else f"{self._total:,} tasks"
        return f"<Bag {self.id}{f' {self.name!r}' if self.name else ''}: {tasks}>"

    # --- results -----------------------------------------------------------------------------------------------------

    @overload
    def as_completed(
        self, *, timeout: Seconds | None = None, errors: Literal["raise"] = "raise"
    ) -> Iterator[tuple[ItemT, ResultT]]: ...
    @overload
    def as_completed(
        self, *, timeout: Seconds | None = None, errors: Literal["return"]
    ) -> Iterator[tuple[ItemT, ResultT | Exception]]: ...

    def as_completed(
        self, *, timeout: Seconds | None = None, errors: Errors = "raise"
    ) -> Iterator[tuple[ItemT, ResultT | Exception]]:
        """Yield each item with its result, in the order in which tasks end, and wait for the others.

        A task that fails does not stop the loop: you still get the other results, and at the end the exception of the
        first failed task is raised, with a note if more tasks failed. ``errors="return"`` yields exceptions in place of
        results, and raises none.

        If the items came one by one (from a generator, `zip`, `map`), or if you attached to the bag, you get each
        item's index in the bag, from 0, instead of the item.

        Raises TimeoutError if a result is not there ``timeout`` seconds after this call (None: waits as long as it
        takes). The bag goes on.
        """
        _check_errors(errors)
        return self._as_completed(errors == "return", _end_of(timeout))

    def _as_completed(self, keep: bool, end: float) -> Iterator[tuple[ItemT, ResultT | Exception]]:
        with self._interruptible():
            first, failed = None, 0
            for row in self._ended(end):
                value = value_of(row, self.id, self._files)
                if not isinstance(value, Raised):
                    yield self._item(row.item), value
                elif keep:
                    yield self._item(row.item), value.error
                else:
                    first, failed = value.error if first is None else first, failed + 1
            if first is not None:
                if failed > 1:
                    add_note(first, f'deskgrid: {failed} tasks failed; as_completed(errors="return") gives each')
                raise first

    @overload
    def results(self, timeout: Seconds | None = None, *, errors: Literal["raise"] = "raise") -> list[ResultT]: ...
    @overload
    def results(self, timeout: Seconds | None = None, *, errors: Literal["return"]) -> list[ResultT | Exception]: ...

    def results(self, timeout: Seconds | None = None, *, errors: Errors = "raise") -> list[Any]:
        """Wait for all results, and return them in the order of the items.

        Raises the exception of a failed task as soon as it is known. The other tasks go on, and you can still ask for
        their results. ``errors="return"``: the list contains the exceptions instead.

        Raises TimeoutError if not all are there after ``timeout`` seconds (None: waits as long as it takes). The bag
        goes on, and you can ask again.
        """
        _check_errors(errors)
        with self._interruptible():
            found: dict[int, Any] = {}
            for row in self._ended(_end_of(timeout)):
                value = value_of(row, self.id, self._files)
                if isinstance(value, Raised) and errors == "raise":
                    raise value.error
                found[row.item] = value.error if isinstance(value, Raised) else value
            return [found[item] for item in sorted(found)]

    def fetch(self, to: str | os.PathLike[str] = ".", item: int | None = None) -> list[Path]:
        """Fetch the files that tasks left, and wait for tasks that have not ended; returns their paths, by item.

        ``to``: the folder for them. ``item``: the index of one task, whose files go directly into that folder; None:
        all tasks, and the files of each go into a folder that is named after its index. Of a gang, those of each rank
        are in a folder in it that is named after the rank. Files that are there already and are equal stay, so a fetch
        that was interrupted goes on where it stopped.

        Raises `RequestFailed` if another file is in the way, and the exception of the task ``item`` if it failed.
        """
        with self._interruptible():
            check("to", to, (str, os.PathLike), "the path of a folder", TypeError)
            self._check_item(item)
            return self._fetch(Path(to), item)

    def _fetch(self, to: Path, item: int | None) -> list[Path]:
        found = dict[int, list[Path]]()
        for row in self._ended():
            if item is None or row.item == item:
                if item is not None and isinstance(value := value_of(row, self.id, self._files), Raised):
                    raise value.error
                folder = to / str(row.item) if item is None else to
                found[row.item] = self._fetched(row, folder)
                if item is not None:
                    break
        if item is not None and not found:
            raise self._no_item(item)
        return [path for number in sorted(found) for path in found[number]]

    def _check_item(self, item: int | None) -> None:
        """Refuse what is no index of a task; the broker knows how many there are by now."""
        if item is not None:
            check("item", item, int, "the index of a task, counted from 0", TypeError)
            if item < 0:
                raise self._no_item(item)

    def _no_item(self, item: int) -> RequestFailed:
        return RequestFailed(f"bag {self.id} has no item {item}: items are numbered from 0, and it has {self._total:,}")

    def _fetched(self, row: wire.BagResult, folder: Path) -> list[Path]:
        if row.outcome != wire.Outcome.DONE:
            return []
        try:
            ranks = wire.split_ranks(row.payload)
            if ranks is None:
                return self._files_of(row.payload, folder)
            found = [self._files_of(payload, folder / str(rank)) for rank, payload in enumerate(ranks)]
        except (wire.TreeRefused, wire.RanksRefused) as error:
            raise RequestFailed(f"the result of task {row.item} cannot be read: {error}") from error
        return [path for paths in found for path in paths]

    def _files_of(self, payload: wire.Payload, folder: Path) -> list[Path]:
        wrapped = wire.unwrap(payload)
        trees = wrapped.trees[:-1] if wrapped.whole else wrapped.trees
        return [path for tree in trees for path in self._files.fetch(tree, folder)]

    def wait(self, timeout: Seconds | None = None) -> bool:
        """Wait until every task has ended, at most ``timeout`` seconds (None: as long as it takes).

        Returns whether all tasks have ended.
        """
        with self._interruptible():
            return self._wait(_end_of(timeout))

    def _wait(self, end: float) -> bool:
        if self._is_complete():
            return True
        number, waiter = self._watch_the_end()
        try:
            with self._meter() as meter:
                while (left := end - time.monotonic()) > 0.0:
                    if reply := waiter.get(min(left, SLICE_S)):
                        return _outcomes(reply).closed
                    meter.tick()
        finally:
            self._link.withdraw(number)
            self._waited.append(number)
        return False

    def _interruptible(self) -> Interruptible:
        """Note at Ctrl-C what whoever presses it may not know."""
        how = " until its private grid ends" if self._link.is_private else f"; grid.attach({self.id!r}) returns to it"
        return Interruptible(f"deskgrid: bag {self.id} goes on{how}")

    def _is_complete(self) -> bool:
        row = self._ask("progress")
        return self._read(lambda row: bool(row["closed"]) and not row["waiting"] + row["running"], row)

    def _ended(self, end: float = math.inf) -> Iterator[wire.BagResult]:
        """Yield every task's result, in the order in which the broker recorded them; fetches one answer ahead.

        Raises TimeoutError if one is not there at ``end``, in monotonic seconds.
        """
        seen, number, waiter = 0, *self._watch(0)
        try:
            with self._meter() as meter:
                while True:
                    while (reply := waiter.get(max(0.0, min(SLICE_S, end - time.monotonic())))) is None:
                        if time.monotonic() >= end:
                            raise TimeoutError(
                                f"{self._total - seen:,} of {self._total:,} tasks of {self!r} have not ended"
                            )
                        meter.tick()
                    outcomes = _outcomes(reply)
                    meter.has_ended(outcomes.settled)
                    rows = results_of(outcomes)
                    seen += len(rows)
                    complete = outcomes.closed and outcomes.settled == outcomes.total
                    last = complete and (seen >= outcomes.total or not rows)
                    if not last:
                        number, waiter = self._watch(outcomes.after)
                    for row in rows:
                        yield row
                        meter.tick()
                    if last:
                        return
        finally:
            self._link.withdraw(number)

    def _watch(self, after: int, number: int | None = None) -> tuple[int, Waiter]:
        number, waiter = self._link.number() if number is None else number, Waiter()
        self._link.send(wire.Watch(number, self.id, after), waiter)
        return number, waiter

    def _watch_the_end(self) -> tuple[int, Waiter]:
        try:
            number = self._waited.popleft()
        except IndexError:  # this is the first wait, or other threads use all numbers
            return self._watch(_THE_END)
        return self._watch(_THE_END, number)

    def _meter(self) -> Meter:
        return Meter(self.name or f"bag {self.id}", lambda: self._progress(_GLANCE_S))

    def _item(self, index: int) -> Any:
        return index if self._items is None else self._items[index]

    # --- questions and orders ----------------------------------------------------------------------------------------

    def progress(self) -> Progress:
        """Return the bag's current progress."""
        return self._progress(ANSWER_S)

    def _progress(self, seconds: float) -> Progress:
        return self._read(Progress.of, self._ask("progress", seconds=seconds, eta=True))

    def eta(self) -> Eta:
        """Estimate when the bag will be done: the median, and an interval that holds nine times out of ten.

        The broker simulates the grid from now on, many times, with the runtimes and windows that it has learned. If
        there is no estimate, the answer says why. Print it to read it.
        """
        return self._read(Eta.of, self._ask("eta"))

    def cancel(self) -> int:
        """Cancel every task that has not ended, including running ones. Returns the number of cancelled tasks."""
        return self._read(lambda answer: int(answer["cancelled"]), self._ask("cancel", seconds=ORDER_S, items=None))

    def pause(self) -> None:
        """Pause the bag: none of its tasks is started until `resume`. Running tasks continue."""
        self._ask("pause", seconds=ORDER_S)

    def resume(self) -> None:
        """Resume the bag after `pause`, so that its tasks start again."""
        self._ask("resume", seconds=ORDER_S)

    def explain(self, item: int | None = None) -> str:
        """Explain why a task waits, or where it is. ``item``: its index; None: the waiting task that takes longest."""
        self._check_item(item)
        return self._read(lambda answer: "\n".join(answer["text"]), self._ask("explain", item=item))

    def advise(self, seconds: Seconds = FORECAST_S) -> Advice:
        """Return what would help the bag to end sooner: PCs that stay longer, and what its longest tasks need.

        Raises `GridUnreachable` if no answer comes within ``seconds``.
        """
        return self._read(Advice.of, self._ask("advise", seconds=checked_seconds(seconds, "seconds")))

    def logs(self, item: int) -> TaskLog:
        """Return a task's output, where it ran and how it ended. ``item``: its index, from 0.

        Of a task that is running, this is the end of what it has printed so far.
        """
        self._check_item(item)
        return self._read(TaskLog.of, self._ask("logs", item=item))

    def follow(self, item: int | None = None) -> Iterator[LogPiece]:
        """Yield what tasks print, as it comes, and how they ended. ``item``: of one task; None: of all.

        A task that prints faster than the grid shows has all of its output (as in `TaskLog`) in the log when it ends.
        """
        self._check_item(item)
        following = Following(self._ask, self.logs)
        yield from following.bag() if item is None else following.task(item)

    def update_runtimes(self, runtimes: Mapping[int, Seconds]) -> None:
        """Change the predicted runtimes of some tasks; waiting tasks are placed again.

        ``runtimes``: seconds by index.
        """
        check("runtimes", runtimes, Mapping, "seconds by index, as in {0: 5.0}", TypeError)
        seconds = [checked_seconds(value, f"the runtime of item {item}") for item, value in runtimes.items()]
        items, some = list(runtimes), wire.QUESTION_ITEMS
        for part in (slice(start, start + some) for start in range(0, len(items), some)):
            self._ask("runtimes", seconds=ORDER_S, items=items[part], runtimes=seconds[part])

    def forget(self) -> None:
        """Delete the bag and its results. Raises `RequestFailed` unless all its tasks have ended."""
        self._ask("forget", seconds=ORDER_S)

    def _ask(self, what: str, *, seconds: float = ANSWER_S, **args: Any) -> dict[str, Any]:
        return ask(self._link, what, {"bag": self.id, **args}, seconds)

    @staticmethod
    def _read(reading: Callable[[dict[str, Any]], ReadT], answer: dict[str, Any]) -> ReadT:
        try:
            return reading(answer)
        except (KeyError, TypeError, ValueError) as error:
            raise RequestFailed(f"the broker's answer cannot be read: {error!r}") from error


def _end_of(timeout: Seconds | None) -> float:
    """Return when a timeout is over, in monotonic seconds."""
    return math.inf if timeout is None else time.monotonic() + checked_seconds(timeout, "the timeout")


def _check_errors(errors: str) -> None:
    if errors not in ("raise", "return"):
        raise ValueError(f'errors is "raise" or "return", not {errors!r}')


def _outcomes(reply: object) -> wire.Outcomes:
    if isinstance(reply, wire.Outcomes):
        return reply
    raise RequestFailed(getattr(reply, "reason", "the broker's answer is not one to a bag"))
