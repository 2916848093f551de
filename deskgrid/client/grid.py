"""The client: `Grid`, with which a program submits bags and calls.

`options` has all that may be said of tasks and bags, `task` what is said of a function, and `new_bags` makes bags.
`conversation` decides which messages are sent and when; `link` has the socket and its thread; `submission` sends a bag
to the broker, and `bag` collects its results; `futures` has the futures.
"""

import logging
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from copy import copy
from dataclasses import replace
from functools import partial
from itertools import islice
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar, Unpack, overload
from weakref import WeakSet

from deskgrid.client.bag import Bag, ItemT, ResultT
from deskgrid.client.bag_files import KnownFiles
from deskgrid.client.carried import CarriedEnvironments
from deskgrid.client.discovery import check_no_task, client_line
from deskgrid.client.eta import Eta
from deskgrid.client.forks import belongs_here
from deskgrid.client.futures import Futures, closed
from deskgrid.client.given import check, check_iterable
from deskgrid.client.interrupts import Interruptible, interruptible
from deskgrid.client.link import OPENING_S, Link
from deskgrid.client.lock import when_free
from deskgrid.client.needs import Gang
from deskgrid.client.new_bags import NewBags
from deskgrid.client.options import (
    BagKeywords,
    CallKeywords,
    CommandKeywords,
    DefaultKeywords,
    GridKeywords,
    TaskKeywords,
    checked_env,
    knows,
    options_of,
    takes,
)
from deskgrid.client.payload import share
from deskgrid.client.replies import ANSWER_S, ask, pages
from deskgrid.client.script_module import find_script
from deskgrid.client.submission import Runtime, Seconds, checked_seconds
from deskgrid.client.task import NO_DEFAULTS, Task, as_task, chunks, defaults_of
from deskgrid.client.template import checked_saving, name_of
from deskgrid.client.whatif import FORECAST_S, Change
from deskgrid.errors import GridClosed, GridUnreachable
from deskgrid.files import Shared
from deskgrid.wire.joinline import JoinLine

if TYPE_CHECKING:
    from deskgrid.client.local import Keeper
    from deskgrid.wire.status import BagState, StatusDocument

log = logging.getLogger("deskgrid.client")

# How many calls `Grid.map` submits before their results are taken, unless the program says.
BUFFERED = 2_000
_CHANGES = "a Change, or a list of them"

ValueT = TypeVar("ValueT")
Calls = Callable[[ItemT], ResultT] | Task[Callable[[ItemT], ResultT]]


class Grid(Executor):
    """A connection to a broker, and an executor in the sense of `concurrent.futures`.

    ``join``: the broker's line for clients, or ``@FILE`` that contains it. None: $DESKGRID_JOIN, or else the broker of
    this machine (client.join in $DESKGRID_HOME or ~/.deskgrid). ``timeout``: how many seconds to wait for the broker.

    Threads can share a Grid. If the broker goes away while the Grid is open, the Grid waits until it is back, and
    continues. At the end of its ``with`` block, it waits for the futures of `submit` and `map`. Bags continue without
    it.

    All other options are defaults for the calls and bags of this Grid; see `using`.

    Raises `GridUnreachable` if no broker answers, and `GridRefused` if the broker does not let this client in.
    """

    @interruptible
    @knows(GridKeywords)
    def __init__(
        self, join: str | None = None, *, timeout: Seconds = OPENING_S, **defaults: Unpack[GridKeywords]
    ) -> None:
        check_no_task()
        self._open(client_line(join), checked_seconds(timeout, "the timeout"), defaults)

    def _open(self, line: JoinLine, seconds: float, defaults: GridKeywords) -> None:
        said = defaults_of(**defaults)
        find_script()
        self._begin(OpenGrid(Link(line)), said, defaults.get("name") or "")
        try:
            self._link.open(seconds)
        except BaseException:
            self._release()
            raise

    def _begin(self, opened: "OpenGrid", defaults: Task[Any], name: str) -> None:
        """Begin a Grid, or a view of one."""
        self._opened = opened
        self._link = opened.link
        self._defaults = defaults
        self._name = name
        self._bags = NewBags(opened.link, opened.known, opened.environments)
        self._futures = Futures(opened.link, opened.known, opened.environments)
        self._shut: GridClosed | None = None
        self._views: WeakSet[Grid] = WeakSet()
        # Also runs at the end of the program. It must not refer to this Grid, so that an unreferenced Grid is closed,
        # too.
        self._release = weakref.finalize(self, _release, self._futures, opened)
        belongs_here(self)

    @interruptible
    @knows(DefaultKeywords)
    def using(self, **defaults: Unpack[DefaultKeywords]) -> Self:
        """Return a view of this Grid with other defaults: give it to code that knows executors, and no options of ours.

        For example, ``with grid.using(env="mine", runtime=60, retries=2) as pool:`` and then ``dask.compute(...,
        scheduler=pool)``, or ``workers=grid.using(runtime=5).map``. It is a Grid of its own for everything else, and
        uses the connection of this one. What you do not give is as it was here.

        Shutting it down waits for its own calls, and leaves this Grid open. When this Grid is shut down, so are its
        views.

        Raises `BagRejected` if a value is invalid.
        """
        self._check_open()
        view = object.__new__(type(self))
        said = defaults_of(**defaults).over(self._defaults)
        view._begin(self._opened.view(self), said, defaults.get("name") or self._name)
        self._views.add(view)
        return view

    @classmethod
    @interruptible
    @knows(GridKeywords)
    def local(cls, workers: int = 4, slots: int = 1, *, mpi: bool = False, **defaults: Unpack[GridKeywords]) -> Self:
        """Start a whole private grid on this machine: a broker, and ``workers`` workers of ``slots`` slots each.

        ``mpi``: they run MPI programs, too; not on Windows. They have speed 1: predicted seconds are of this machine.

        The private grid ends with this Grid, or with this program, however the program ends. Its bags end with it. All
        other options are defaults; see `using`.

        Raises `GridUnreachable` if it does not start in time.
        """
        from deskgrid.client import local

        keeper = local.start(workers, slots=slots, mpi=mpi)
        try:
            grid = object.__new__(cls)  # also in a task: this grid is its own
            grid._open(client_line(keeper.join), OPENING_S, defaults)
        except BaseException:
            keeper.stop()
            raise
        grid._opened.keeper = keeper
        grid._link.is_private = True
        try:
            local.await_workers(lambda: len(grid.status()["workers"]), workers)
        except GridUnreachable:
            grid.shutdown()
            raise
        return grid

    def forked(self, error: GridClosed) -> None:
        """Become useless in a forked child, which has none of the threads; see `deskgrid.client.forks`."""
        self._shut = error
        if self._release.detach() is not None:
            self._futures.forked(error)
            self._opened.forked(error)

    def __repr__(self) -> str:
        return f"<Grid at {self.address}{', shut down' if self._shut else ''}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Grid cannot travel to a worker: the function or an argument refers to it")

    @property
    def address(self) -> str:
        """The broker's address, as HOST:PORT."""
        return self._link.address

    # --- bags --------------------------------------------------------------------------------------------------------

    @overload
    def bag(
        self, function: Calls[ItemT, ResultT], items: Iterable[ItemT], *, gang: Gang, **rest: Unpack[CallKeywords]
    ) -> Bag[ItemT, list[ResultT]]: ...
    @overload
    def bag(
        self,
        function: Calls[ItemT, ResultT],
        items: Iterable[ItemT],
        *,
        gang: None = None,
        **rest: Unpack[CallKeywords],
    ) -> Bag[ItemT, ResultT]: ...
    @interruptible
    @takes(TaskKeywords, BagKeywords)
    def bag(
        self,
        function: Calls[ItemT, ResultT],
        items: Iterable[ItemT],
        *,
        runtime: Runtime = None,
        modules: Sequence[str] = (),
        checkpoint: bool | None = None,
        gang: Gang | None = None,
        **options: Unpack[BagKeywords],
    ) -> Bag[ItemT, Any]:
        """Submit one call ``function(item)`` for each of ``items``; returns when the broker has them all on disk.

        ``runtime``: the predicted seconds of a call: a number, a list with a number for each item, or a function of the
        item. If you are unsure, predict a little more rather than too little. Without predictions, the broker learns
        from the first results. ``modules``: names of more modules of your own that travel; a package travels as a
        whole. You need this only for modules that the function imports by a computed name. ``checkpoint``: the function
        saves its state with `deskgrid.checkpoint`, so it need not fit into one window; a PC needs only ``min_piece``
        seconds for it. Options that you do not give are those that you gave to `task`.

        ``items`` are taken one by one, so a generator can yield millions of items. Items of a generator are not kept in
        memory, so `Bag.as_completed` yields their indexes instead (with ``explore``, they are kept). The function and
        your own modules travel as they are now. If the broker has a remark about the bag, such as that a call is longer
        than any known window, it is logged as a warning. Warnings go to stderr, unless the program configures logging
        otherwise.

        Raises `BagRejected` for items, runtimes or sizes that cannot be accepted, and for a Python that no PC has; and
        `PicklingFailed`. After an error or an interrupt, nothing of the bag is left on the grid.
        """
        self._check_open()
        job = self._task(function).of_a_bag(modules, checkpoint, gang, options)
        self._name_it(options)
        bag: Bag[ItemT, Any] = self._bags.of_calls(job, items, runtime, options, self)
        if bag.note:
            log.warning("bag %s (%s): %s", bag.id, bag.name, bag.note)
        return bag

    @overload
    def command(
        self, argv: Sequence[str], items: Iterable[str], *, gang: Gang, **rest: Unpack[CommandKeywords]
    ) -> Bag[str, list[str]]: ...
    @overload
    def command(
        self, argv: Sequence[str], items: Iterable[str], *, gang: None = None, **rest: Unpack[CommandKeywords]
    ) -> Bag[str, str]: ...
    @interruptible
    @takes(TaskKeywords, BagKeywords)
    def command(
        self,
        argv: Sequence[str],
        items: Iterable[str],
        *,
        runtime: Runtime = None,
        checkpoint: Sequence[str] = (),
        checkpoint_signal: str = "USR1",
        checkpoint_exit: int = 85,
        inputs: Iterable[str | PathLike[str]] = (),
        outputs: Sequence[str] = (),
        gang: Gang | None = None,
        **options: Unpack[BagKeywords],
    ) -> Bag[str, Any]:
        """Submit one run of a command for each of ``items``, a text that replaces "{}" in ``argv``.

        If there is no "{}", the text is added at the end. The task fails if the exit code is not 0. Everything else is
        as for `bag`, except that nothing is logged: the broker's remark about the bag is in `Bag.note`.

        The result is the stdout of the command as a text. Bytes that are not UTF-8 are lone surrogates in it, as in
        names of files: ``result.encode("utf-8", "surrogateescape")`` is what the command wrote. The same holds for
        ``argv`` and ``items``: ``os.fsdecode(data)`` makes an item of bytes.

        ``checkpoint``: patterns of the files in which the command saves its state, such as ``["state/*"]``. The command
        then need not fit into one window. It runs in a folder of its own, with the files that it saved last. To make
        it save, the worker sends the signal ``checkpoint_signal``. The command then saves its state, and exits with the
        code ``checkpoint_exit``.

        ``inputs``: files and folders, each as PATH, NAME=PATH or a `pathlib.Path`. Every task finds them in a fresh
        folder, in which its command runs. ``outputs``: patterns of the files in that folder to keep for `Bag.fetch`,
        such as "out/*.npz". A task fails if a pattern matches nothing.
        """
        self._check_open()
        before = replace(self._defaults.options, checkpoint=bool(checkpoint))
        said = options_of(before, gang, options)
        self._name_it(options)
        saving = checked_saving(checkpoint, checkpoint_signal, checkpoint_exit)
        return self._bags.of_commands(
            argv,
            items,
            self._defaults.runtime if runtime is None else runtime,
            said,
            options,
            env=checked_env(options.get("env")) or self._defaults.env,
            saving=saving,
            inputs=inputs,
            outputs=outputs,
            owner=self,
        )

    def _task(self, function: Any) -> Task[Any]:
        """Return a function with all that is said of it."""
        job = as_task(function)
        return job if self._defaults is NO_DEFAULTS else job.over(self._defaults)

    def _name_it(self, options: BagKeywords) -> None:
        if self._name and not options.get("name"):
            options["name"] = self._name

    @interruptible
    def share(self, value: ValueT) -> Shared[ValueT]:
        """Share an object with all tasks of a bag. Use the returned handle in the function or in the items of the bag.

        In a task, the handle is the object itself. The object travels to each PC once. All tasks there read its large
        arrays (everything that supports pickle's out-of-band buffers) from one copy, so these are read-only. What a
        task changes otherwise, no other task sees. Do not change the object in your program afterwards.

        Raises `PicklingFailed`.
        """
        return share(value)

    @interruptible
    def attach(self, bag_id: str) -> Bag[Any, Any]:
        """Return the bag with the id ``bag_id``, whichever program submitted it.

        Raises `RequestFailed` if there is no such bag, or it belongs to another credential.
        """
        check("bag_id", bag_id, str, "the id of a bag, a text", TypeError)
        row = self._ask("progress", {"bag": bag_id})
        total, name, note = int(row["total"]), str(row["name"]), str(row["note"])
        if note:
            log.warning("bag %s (%s): %s", bag_id, name, note)
        return Bag(self._link, bag_id, name, total, items=None, note=note, kind=row["kind"], owner=self)

    # --- calls -------------------------------------------------------------------------------------------------------

    @interruptible
    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Submit one call ``fn(*args, **kwargs)``; `task` gives it a predicted runtime.

        The future behaves as `concurrent.futures` documents it, with two exceptions: cancelling it also stops a running
        call, and ``running()`` is never True, because a program is told when its calls end, and not when they start. No
        other program can collect its result: if this program ends without waiting, the call still runs, but its result
        is lost.

        The modules that ``fn`` imports travel as they were at its first call.

        Raises `BagRejected`, `PicklingFailed`, and, after `shutdown`, `GridClosed` (a RuntimeError).
        """
        self._check_open()
        return self._submit(self._task(fn), args, kwargs)

    def _submit(self, job: Task[Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Future[Any]:
        name = self._name or name_of(job.function)
        return self._futures.submit(
            job.function,
            args,
            kwargs,
            name=name,
            modules=job.modules,
            env=job.env,
            options=job.options,
            runtime=job.runtime,
            owner=self,
        )

    @interruptible
    def map(
        self,
        fn: Callable[..., Any],
        *iterables: Iterable[Any],
        timeout: Seconds | None = None,
        chunksize: int = 1,
        buffersize: int | None = None,
        runtime: Seconds | None = None,
    ) -> Iterator[Any]:
        """Run ``map(fn, *iterables)`` on the grid: results in order, as `concurrent.futures.Executor.map` documents.

        ``timeout``: waiting for a result more than this many seconds after the call of `map` raises TimeoutError.
        ``chunksize``: how many calls make one task; more than 1 pays off if calls are shorter than a few milliseconds.
        ``buffersize``: how many tasks may be submitted whose results you have not taken yet, 2,000 by default. The
        first ones are submitted at once, and one more with each result that you take, so the iterables may be endless.
        ``runtime``: predicted seconds of one call.

        Raises what `submit` raises.
        """
        check("chunksize", chunksize, int, "a number of calls", TypeError)
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1")
        if buffersize is not None and not isinstance(buffersize, int):
            raise TypeError("buffersize must be an integer or None")
        if buffersize is not None and buffersize < 1:
            raise ValueError("buffersize must be None or > 0")
        for each in iterables:
            check_iterable("an iterable", each, "a list, or anything else that `for` goes through", TypeError)
        self._check_open()
        job = self._task(fn)
        if job.options.gang and chunksize > 1:
            raise ValueError("a task of several calls has one rank: leave out chunksize, or the gang")
        if runtime is not None:
            job = replace(job, runtime=checked_seconds(runtime, "the runtime"))
        end = None if timeout is None else time.monotonic() + checked_seconds(timeout, "the timeout")
        calls: Iterator[tuple[Any, ...]] = zip(*iterables, strict=False)
        if chunksize == 1:
            return self._mapped(job, calls, buffersize or BUFFERED, end)
        found = self._mapped(job.in_chunks(chunksize), zip(chunks(calls, chunksize)), buffersize or BUFFERED, end)
        return _each_of(found)

    def _mapped(self, job: Task[Any], calls: Iterator[tuple[Any, ...]], most: int, end: float | None) -> Iterator[Any]:
        """Submit the first calls now, and others as results are taken; never more than ``most`` ahead."""
        futures = deque([self._submit(job, args, {}) for args in islice(calls, most)])

        def results() -> Iterator[Any]:
            try:
                while futures:
                    if (args := next(calls, None)) is not None:
                        with Interruptible():
                            self._check_open()
                            futures.append(self._submit(job, args, {}))
                    left = None if end is None else end - time.monotonic()
                    with Interruptible():
                        result = [_result_of(futures.popleft(), left)]
                    yield result.pop()  # so that nothing here keeps it from being freed
            finally:
                for future in futures:
                    future.cancel()

        return results()

    @interruptible
    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more work, and close the connection when every future has its result.

        ``wait``: return only then. ``cancel_futures``: cancel the futures whose calls do not run yet. Bags are not
        affected. You may call this twice, and in a signal handler. If that interrupts another call of ours in a moment
        in which nobody can wait, this returns at once, and the Grid closes as soon as that call goes on.
        """
        if self._release.alive:  # otherwise it is closed, or another process opened it
            when_free(lambda: self._shut_down(wait, cancel_futures), self._futures.beginning)

    def _shut_down(self, wait: bool, cancel_futures: bool) -> None:
        self._shut = self._shut or closed()
        views = list(self._views)
        for view in views:
            view.shutdown(wait, cancel_futures=cancel_futures)
        self._futures.close(cancel_futures)
        if wait:
            self._futures.wait()
            self._release()
        else:
            _afterwards([self._futures, *[view._futures for view in views]], self._release)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, KeyboardInterrupt):
            self._abort(error)
            return
        with Interruptible():
            try:
                self.shutdown(wait=True)
            except KeyboardInterrupt as interrupt:
                self._abort(interrupt)
                raise

    def _abort(self, interrupt: KeyboardInterrupt | None = None) -> None:
        """Cancel all futures and close at once: after an interrupt the program must not wait for them."""
        if self._release.alive:
            if interrupt is not None and self._futures.open:
                interrupt.add_note("deskgrid: the calls that had not ended are cancelled")
            self._shut = closed()
            for view in list(self._views):
                view._abort()
            self._futures.abort()
        self._release()

    # --- the grid ----------------------------------------------------------------------------------------------------

    def status(self, timeout: Seconds = ANSWER_S) -> "StatusDocument":
        """Return the document that `deskgrid status --json` prints: workers, bags, queues and counters.

        Raises `GridUnreachable` if no answer comes within ``timeout`` seconds.
        """
        document: Any = self._ask("status", {}, checked_seconds(timeout, "the timeout"))
        found: StatusDocument = document
        return found

    def bags(self, *, mine: bool = False) -> "list[BagState]":
        """Return all bags on the broker, oldest first: ids ("bag"), names and counts, as in the status.

        ``mine``: only those that were submitted with your key.
        """
        asked = pages(lambda after: self._ask("bags", {"after": after, "mine": mine}))
        return [row for page in asked for row in page["bags"]]

    def shares(self) -> list[dict[str, Any]]:
        """Return what each share of the grid has used, those that are ahead first.

        Each is a dictionary: "share" (its name), "weight", "keys" (the credentials that have it), "used_s"
        (slot-seconds, of which half is left after three days), "promised_s" (predicted for the tasks that it has on
        PCs), "running" (how many these are), and "waits" (whether tasks of it wait).
        """
        found: list[dict[str, Any]] = self._ask("shares", {})["shares"]
        return found

    @interruptible
    def whatif(
        self,
        bag: "Bag[Any, Any] | str | None" = None,
        changes: Iterable[Change] | Change = (),
        *,
        runtime: Seconds | None = None,
        tasks: int | None = None,
    ) -> list[Eta]:
        """Return when a bag would end: first as things are, then with each of ``changes``. Nothing changes by asking.

        ``bag``: your bag, or its id. None: a bag of ``tasks`` tasks of ``runtime`` predicted seconds each, as if you
        submitted it now. ``changes``: one change, or at most 16.
        """
        changes = [changes] if isinstance(changes, Change) else changes
        check_iterable("changes", changes, _CHANGES, TypeError)
        changes = list(changes)
        for change in changes:
            check("changes", change, Change, _CHANGES, TypeError)
        said: dict[str, Any] = {"changes": [change.said() for change in changes]}
        if isinstance(bag, Bag):
            answer = bag._ask("whatif", seconds=FORECAST_S, **said)
        elif bag is not None:
            check("bag", bag, str, "a bag or its id", TypeError)
            answer = self._ask("whatif", {"bag": bag, **said}, FORECAST_S)
        elif runtime is None or tasks is None:
            raise ValueError("name a bag, or give runtime and tasks")
        else:
            check("tasks", tasks, int, "a number of tasks", TypeError)
            seconds = checked_seconds(runtime, "the runtime")
            answer = self._ask("whatif new", {"tasks": tasks, "runtime_s": seconds, **said}, FORECAST_S)
        return [Eta.of(row) for row in answer["rows"]]

    def policy(self, name: str, **options: object) -> None:
        """Change the policy of the running grid. Raises `RequestFailed` unless you are an admin."""
        self._ask("policy", {"name": name, "options": options})

    def forget_learned(self) -> None:
        """Make the broker forget everything that it learned. Raises `RequestFailed` unless you are an admin."""
        self._ask("forget learned", {})

    def _ask(self, what: str, args: dict[str, Any], timeout: float = ANSWER_S) -> dict[str, Any]:
        self._check_open()
        return ask(self._link, what, args, timeout)

    def _check_open(self) -> None:
        if self._shut is not None:
            raise GridClosed(*self._shut.args)


def _each_of(found: Iterator[list[Any]]) -> Iterator[Any]:
    while True:
        with Interruptible():
            results = next(found, None)
        if results is None:
            return
        yield from results


def _result_of(future: Future[Any], seconds: float | None) -> Any:
    """Wait for a call, and cancel it if the wait fails. It has the only reference, so that no result lives longer."""
    try:
        return future.result(seconds)
    finally:
        future.cancel()


class OpenGrid:
    """What a Grid and its views use together; and ``keeper``, which keeps the private grid if it is one."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.known = KnownFiles()
        self.environments = CarriedEnvironments(partial(ask, link))
        self.keeper: Keeper | None = None
        self._of: Grid | None = None

    def view(self, of: "Grid") -> "OpenGrid":
        """Return the same for a view of a Grid, which keeps that open."""
        view = copy(self)
        view._of = of
        return view

    def forked(self, error: GridClosed) -> None:
        """Let go of it in a forked child."""
        if self._of is None:
            self.link.forked(error)
            if self.keeper is not None:
                self.keeper.forked()

    def close(self, futures: Futures) -> None:
        """Close the connection, and end the private grid if it is one, unless this is a view's."""
        if self._of is None:
            self.link.close()
        futures.stop()
        if self._of is None and self.keeper is not None:
            self.keeper.stop()


def _afterwards(waiting: list[Futures], action: Callable[[], object]) -> None:
    """Do ``action`` when all calls of each have ended."""
    if waiting:
        waiting[0].afterwards(lambda: _afterwards(waiting[1:], action))
    else:
        action()


def _release(futures: Futures, opened: OpenGrid) -> None:
    """Free everything that a Grid uses: its threads, its connection, and its local grid if it has one.

    A local grid runs what was submitted first, as a process pool does at the end of the program: nobody else would.
    """
    when_free(lambda: _free(futures, opened), futures.beginning)


def _free(futures: Futures, opened: OpenGrid) -> None:
    try:
        futures.close(cancel=False)
        if opened.keeper is not None:
            futures.wait()
        else:
            futures.flush()
    finally:
        opened.close(futures)
