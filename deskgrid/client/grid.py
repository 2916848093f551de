"""The client: `Grid`, by which a program submits bags and calls, and `task`.

What crosses the wire and when is in `conversation`; the socket and its thread are in `link`; a bag's way to the broker
is in `submission`, its results are in `bag`; futures are in `futures`.
"""

import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Self, TypeVar

from deskgrid.client.bag import Bag, ItemT, ResultT
from deskgrid.client.discovery import client_line
from deskgrid.client.futures import Futures, closed
from deskgrid.client.link import OPENING_S, Link
from deskgrid.client.payload import pack_call, pack_text
from deskgrid.client.replies import ANSWER_S, ask, pages
from deskgrid.client.submission import Runtime, checked_options, checked_seconds, kept, submit_bag
from deskgrid.client.template import Template, command_template, name_of, pickle_function, python_template
from deskgrid.errors import GridUnreachable
from deskgrid.wire import NAME_BYTES, Payload, TaskOptions, cut

if TYPE_CHECKING:
    from deskgrid.client.local import Keeper
    from deskgrid.wire.status import BagState, StatusDocument

log = logging.getLogger("deskgrid.client")

# Between two looks at whether a local grid's workers have joined. Seconds.
_LOOK_S = 0.01

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Task(Generic[FunctionT]):
    """A function, and what holds for each call of it. `task` makes it; it can still be called."""

    function: FunctionT
    runtime: float | None = None
    options: TaskOptions = field(default_factory=TaskOptions)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def task(
    function: FunctionT, runtime: float | None = None, timeout: float | None = None, retries: int = 0
) -> Task[FunctionT]:
    """Say of ``function`` how long a call takes, for `Grid.submit`, `Grid.map` and `Grid.bag`.

    ``runtime``: the predicted seconds of a call. ``timeout``: seconds after which a call is stopped and has failed.
    ``retries``: how often a call that raised, or was stopped, is tried again.

    Raises `BagRejected` if one of them is not such a number.
    """
    options = checked_options(TaskOptions(timeout, retries))
    return Task(function, None if runtime is None else checked_seconds(runtime, "the runtime"), options)


class Grid(Executor):
    """A connection to a broker, and an executor in the sense of `concurrent.futures`.

    ``join``: the broker's line for clients, or ``@FILE`` that holds it. None: $DESKGRID_JOIN, or else the broker of
    this machine (client.join in $DESKGRID_HOME or ~/.deskgrid). ``timeout``: how many seconds opening waits for the
    broker.

    Threads may share a Grid. Once it is open, it waits for a broker that is away, and then carries on where it was. At
    the end of its ``with`` block it waits for the futures of `submit` and `map`; bags go on without it.

    Raises `GridUnreachable` when no broker answers, and `GridRefused` when the broker does not let this client in.
    """

    def __init__(self, join: str | None = None, *, timeout: float = OPENING_S) -> None:
        line = client_line(join)
        self._link = Link(line)
        self._futures = Futures(self._link)
        self._shut = False
        # Also at the end of the program; what holds no Grid, so that one that nobody holds is closed, too.
        self._release = weakref.finalize(self, _release, self._futures, self._link, None)
        try:
            self._link.open(checked_seconds(timeout, "the timeout"))
        except BaseException:
            self._release()
            raise

    @classmethod
    def local(cls, workers: int = 4) -> Self:
        """Start a whole private grid on this machine: a broker, and ``workers`` workers of one slot each.

        All of it ends with this Grid, or with this program, however that ends. Bags do not outlive it.

        Raises `GridUnreachable` when it does not start in time.
        """
        from deskgrid.client import local

        keeper = local.start(workers)
        try:
            grid = cls(keeper.join)
        except BaseException:
            keeper.stop()
            raise
        grid._keep(keeper)
        grid._await_workers(workers, local.START_S)
        return grid

    def _keep(self, keeper: "Keeper") -> None:
        """Stop a local grid's processes with this Grid."""
        self._release.detach()
        self._release = weakref.finalize(self, _release, self._futures, self._link, keeper)

    def _await_workers(self, count: int, seconds: float) -> None:
        """Wait until ``count`` workers have joined: before that, the broker would say of a bag that it has to wait."""
        end, never = time.monotonic() + seconds, threading.Event()
        while len(self.status()["workers"]) < count:
            if time.monotonic() > end:
                self.shutdown()
                raise GridUnreachable(f"not all {count} workers of the local grid have joined within {seconds:g} s")
            never.wait(_LOOK_S)

    def __repr__(self) -> str:
        return f"<Grid at {self.address}{', shut down' if self._shut else ''}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Grid cannot travel to a worker: the function or an argument refers to it")

    @property
    def address(self) -> str:
        """Where the broker is, as HOST:PORT."""
        return self._link.address

    # --- bags --------------------------------------------------------------------------------------------------------

    def bag(
        self,
        function: "Callable[[ItemT], ResultT] | Task[Callable[[ItemT], ResultT]]",
        items: Iterable[ItemT],
        *,
        runtime: Runtime = None,
        name: str = "",
        timeout: float | None = None,
        retries: int | None = None,
    ) -> Bag[ItemT, ResultT]:
        """Submit one call ``function(item)`` for each of ``items``; returns when the broker has them all on disk.

        ``runtime``: how many seconds a call is predicted to take: a number, a list with one for each item, or a
        function of the item. A little too long is better than too short. Without it the broker learns from the first
        results. ``timeout``: seconds after which a call is stopped and has failed. ``retries``: how often a call that
        raised is tried again. Both default to what `task` said.

        ``items`` are taken one by one, so a generator may give millions of them. They are not held then, and
        `Bag.as_completed` gives their indexes. The function and the program's own modules travel as they are now. If
        the broker has something to say about the bag, such as that a call is longer than any known window, it is logged
        as a warning, which goes to stderr unless the program decides otherwise.

        Raises `BagRejected` for items, runtimes or sizes that cannot be accepted, `PicklingFailed`, and
        `PythonMismatch`. Nothing of the bag is then left on the grid, and neither is it after an interrupt.
        """
        job = _as_task(function)
        if runtime is None:
            runtime = job.runtime
        given: dict[str, Any] = {"timeout": timeout, "retries": retries}
        options = replace(job.options, **{option: value for option, value in given.items() if value is not None})
        options = checked_options(options)
        self._check_open()
        label = name_of(job.function)
        template = python_template(pickle_function(job.function), label)
        bag: Bag[ItemT, ResultT] = self._submit(
            template, items, pack=_pack_item, name=name or label, runtime=runtime, options=options
        )
        if bag.note:
            log.warning("bag %s (%s): %s", bag.id, bag.name, bag.note)
        return bag

    def command(
        self,
        argv: Sequence[str],
        items: Iterable[str],
        *,
        runtime: Runtime = None,
        name: str = "",
        timeout: float | None = None,
        retries: int = 0,
    ) -> Bag[str, str]:
        """Submit one run of a command for each of ``items``, a text that takes the place of "{}" in ``argv``.

        Without a "{}" the text is added at the end. The result is what the command prints to stdout; a command that
        exits with another code than 0 has failed. The rest is as for `bag`, but nothing is logged: what the broker has
        to say about the bag is in `Bag.note`.
        """
        options = checked_options(TaskOptions(timeout, retries))
        self._check_open()
        template = command_template(argv)
        label = name or cut(argv[0], NAME_BYTES)
        return self._submit(template, items, pack=pack_text, name=label, runtime=runtime, options=options)

    def _submit(
        self,
        template: Template,
        items: Iterable[Any],
        *,
        pack: Callable[[Any, str], Payload],
        name: str,
        runtime: Runtime,
        options: TaskOptions,
    ) -> Bag[Any, Any]:
        held = kept(items)
        bag, total, note = submit_bag(
            self._link,
            template,
            items if held is None else held,
            pack=pack,
            name=name,
            runtime=runtime,
            options=options,
        )
        return Bag(self._link, bag, name, total, items=held, note=note, owner=self)

    def attach(self, bag_id: str) -> Bag[Any, Any]:
        """Return the bag with the id ``bag_id``, whichever program submitted it.

        Raises `RequestFailed` when there is no such bag, or it belongs to another credential.
        """
        row = self._ask("progress", {"bag": bag_id})
        total, name, note = int(row["total"]), str(row["name"]), str(row["note"])
        return Bag(self._link, bag_id, name, total, items=None, note=note, owner=self)

    # --- calls -------------------------------------------------------------------------------------------------------

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Submit one call ``fn(*args, **kwargs)``; `task` gives it a predicted runtime.

        The future behaves as `concurrent.futures` documents it, with two exceptions: cancelling it also stops a call
        that runs, and ``running()`` does not tell whether it runs. Nobody else can collect its result: if the program
        ends without waiting, the call still runs, but its result is lost.

        The modules that ``fn`` imports travel as they were at its first call.

        Raises `BagRejected`, `PicklingFailed`, `PythonMismatch`, and, after `shutdown`, `GridClosed` (a RuntimeError).
        """
        job = _as_task(fn)
        name = name_of(job.function)
        return self._futures.submit(
            job.function, args, kwargs, name=name, options=job.options, runtime=job.runtime, owner=self
        )

    def map(
        self,
        fn: Callable[..., Any],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        runtime: float | None = None,
    ) -> Iterator[Any]:
        """Run ``map(fn, *iterables)`` on the grid: results in order, as `concurrent.futures.Executor.map` documents.

        ``timeout``: a result that is not there after so many seconds from now raises TimeoutError. ``chunksize``: so
        many calls make one task, which pays if they are shorter than a few milliseconds. ``runtime``: predicted seconds
        of one call.

        Raises what `submit` raises.
        """
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1")
        job = _as_task(fn)
        if runtime is not None:
            job = replace(job, runtime=checked_seconds(runtime, "the runtime"))
        if chunksize == 1:
            return super().map(job, *iterables, timeout=timeout)
        chunks = _chunks(zip(*iterables, strict=False), chunksize)
        found = super().map(_in_chunks(job, chunksize), chunks, timeout=timeout)
        return (result for results in found for result in results)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more work, and close the connection when every future has its result.

        ``wait``: return only then. ``cancel_futures``: cancel those that do not run yet. Bags are left as they are. It
        may be called twice.
        """
        self._shut = True
        self._futures.close(cancel_futures)
        if wait:
            self._futures.wait()
            self._release()
        else:
            self._futures.afterwards(self._release)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            self._abort()
            return
        try:
            self.shutdown(wait=True)
        except KeyboardInterrupt:
            self._abort()
            raise

    def _abort(self) -> None:
        """Whoever interrupts a program does not want it to wait; and nobody will ever collect its futures."""
        self._shut = True
        self._futures.abort()
        self._release()

    # --- the grid ----------------------------------------------------------------------------------------------------

    def status(self, timeout: float = ANSWER_S) -> "StatusDocument":
        """Return what `deskgrid status --json` prints: workers, bags, queues and counters.

        Raises `GridUnreachable` when no answer comes within ``timeout`` seconds.
        """
        document: Any = self._ask("status", {}, timeout)
        found: StatusDocument = document
        return found

    def bags(self) -> "list[BagState]":
        """Return all bags that the broker has, the oldest first: ids ("bag"), names and counts, as in the status."""
        return [row for page in pages(lambda after: self._ask("bags", {"after": after})) for row in page["bags"]]

    def policy(self, name: str, **options: object) -> None:
        """Change the policy of the running grid. Raises `RequestFailed` for everybody but admins."""
        self._ask("policy", {"name": name, "options": options})

    def _ask(self, what: str, args: dict[str, Any], timeout: float = ANSWER_S) -> dict[str, Any]:
        self._check_open()
        return ask(self._link, what, args, timeout)

    def _check_open(self) -> None:
        if self._shut:
            raise closed()


def _release(futures: Futures, link: Link, keeper: "Keeper | None") -> None:
    """What a Grid leaves behind: nothing."""
    futures.flush()
    link.close()
    futures.stop()
    if keeper is not None:
        keeper.stop()


def _as_task(function: Any) -> Task[Any]:
    if isinstance(function, Task):
        return function
    if not callable(function):
        raise TypeError(f"a task is something that can be called, not {function!r:.80}")
    return Task(function)


def _pack_item(item: Any, what: str) -> Payload:
    return pack_call((item,), {}, what)


def _chunks(calls: Iterable[tuple[Any, ...]], size: int) -> Iterator[list[tuple[Any, ...]]]:
    calls = iter(calls)
    while chunk := list(islice(calls, size)):
        yield chunk


def _in_chunks(job: Task[Any], size: int) -> Task[Any]:
    """``job`` for ``size`` calls at a time."""
    function = job.function

    # Made here, so that it travels by value: a worker's tasks import nothing of ours.
    def each(chunk: list[tuple[Any, ...]]) -> list[Any]:
        return [function(*args) for args in chunk]

    runtime = None if job.runtime is None else checked_seconds(job.runtime * size, "the runtime")
    timeout = None if job.options.timeout is None else job.options.timeout * size
    return Task(each, runtime, checked_options(replace(job.options, timeout=timeout)))
