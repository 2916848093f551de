"""The open bag for the calls of one function, which are submitted one by one, and their futures.

Rule 1: a batch contains the calls submitted by the time the link's thread gets to it, and at most WINDOW batches are on
their way. So a single call never waits, and ten thousand calls need few messages.
Rule 2: the stream watches for results while some are missing. When all have arrived, the next watch is sent with the
next call. So a program that waits for each of its calls sends the broker one message per call.
Rule 3: only the thread that takes a future out settles it. The link's thread must not run the user's code, so it
settles only calls that succeeded and whose futures have no callbacks. The thread that reads such a result unpickles it.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any, NamedTuple

from deskgrid import wire
from deskgrid.client.bag_files import BagFiles
from deskgrid.client.conversation import Handler, Reply
from deskgrid.client.downloads import ResultFiles
from deskgrid.client.interrupts import Interruptible
from deskgrid.client.link import Link
from deskgrid.client.lock import LOCK, LockCondition, Waiters, check_free
from deskgrid.client.payload import Raised, Unread, value_of
from deskgrid.client.replies import results_of
from deskgrid.client.submission import payload_size
from deskgrid.client.template import Template
from deskgrid.errors import BagRejected, DeskgridError, RequestFailed

log = logging.getLogger("deskgrid.client")

# Calls in one bag, far below the limit of a bag; further calls go into a new bag.
BAG_CALLS = 1_000_000
# Batches of one bag that may be on their way at once. A program that submits in a loop keeps other threads waiting for
# the interpreter: the second batch contains the calls that it submitted while the first one was being sent.
WINDOW = 2


class GridFuture(Future[Any]):
    """A call on the grid. `cancel` also stops a call that already runs there.

    `running` is never True: a program is told when its calls end, and not when they start.
    """

    def __init__(self, stream: "CallStream") -> None:
        super().__init__()
        self._condition = LockCondition(LOCK)  # who waits holds no lock that `check_free` does not know
        self._waiters = Waiters()
        self._stream = stream
        self.index: int | None = None  # in its bag, once it has been sent
        self.followed = False  # has a callback

    def add_done_callback(self, fn: Callable[["Future[Any]"], object]) -> None:
        """Add a callback, as in `concurrent.futures`."""
        check_free()
        self._stream.follow(self)
        super().add_done_callback(fn)

    def result(self, timeout: float | None = None) -> Any:
        """Return the result of the call, as in `concurrent.futures`."""
        with Interruptible():
            check_free()
            value = _read(super().result(timeout))
        if isinstance(value, Raised):
            raise value.error
        return value

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the exception of the call, as in `concurrent.futures`."""
        with Interruptible():
            check_free()
            error = super().exception(timeout)
        value = _read(super().result()) if error is None else None
        return value.error if isinstance(value, Raised) else error

    def cancel(self) -> bool:
        """Cancel the call unless it has ended; return whether it is cancelled."""
        check_free()
        if not self._stream.let_go(self):
            return super().cancel()
        settle_cancelled(self)
        return True


class _Call(NamedTuple):
    payload: wire.Payload
    runtime: float | None


class CallStream:
    """The open bag of one function, with its futures."""

    def __init__(
        self,
        link: Link,
        template: Template,
        name: str,
        options: wire.TaskOptions,
        ended: Callable[["CallEnded"], None],
        *,
        files: BagFiles,
    ) -> None:
        self.bag = files.bag
        self.files = files
        self._result_files = ResultFiles(link, files.bag)
        self._link = link
        self._template = template
        self._name = name
        self._options = options
        self._ended = ended
        # Those that have not been sent, in order, and those that have, by their index in the bag.
        self._waiting: OrderedDict[GridFuture, _Call] = OrderedDict()
        self._held: dict[int, GridFuture] = {}
        self._sent = 0
        # How many batches are on their way, and whether the link's thread knows that there is more to send.
        self._flying = 0
        self._asked = False
        self._watching = False
        self._seen = 0
        self._closing = False
        self._closed = False
        self._to_cancel: list[int] = []
        # How many cancel orders have not been answered.
        self._cancelling = 0
        # Whether the broker may forget the calls when all have ended: not if files of results are still to be fetched.
        self._forgets = not options.keep
        self._forgotten = False
        self._note = ""

    @property
    def open(self) -> bool:
        """Whether some futures have not been taken out."""
        return bool(self._waiting or self._held)

    @property
    def over(self) -> bool:
        """Whether it is closed and has no more to do."""
        return self._closed and not self._flying and not self.open

    @property
    def unsent(self) -> bool:
        """Whether the broker has yet to accept some calls."""
        return bool(self._waiting) or (self._flying > 0 and self.open)

    @property
    def cancelling(self) -> bool:
        """Whether the broker has yet to hear of some cancelled calls."""
        return self._cancelling > 0

    @property
    def leaving(self) -> bool:
        """Whether all calls have ended, and the broker has yet to hear that nobody needs them any more."""
        return self._closing and self._forgets and self._sent > 0 and not (self.open or self._forgotten)

    @property
    def full(self) -> bool:
        """Whether further calls should go into a new bag."""
        return self._sent + len(self._waiting) >= BAG_CALLS

    def submit(self, payload: wire.Payload, runtime: float | None) -> GridFuture:
        """Add a call; return its future. The caller holds the lock, and has to wake the link afterwards."""
        future = GridFuture(self)
        self._waiting[future] = _Call(payload, runtime)
        self._send()
        return future

    def close(self) -> None:
        """Take no more calls; the bag is closed with the last waiting call."""
        with LOCK:
            self._closing = True
            self._send()
        self._link.wake()

    def follow(self, future: GridFuture) -> None:
        """Note that ``future`` has callbacks from now on."""
        with LOCK:
            future.followed = True

    def settle(self, results: Iterable[wire.BagResult]) -> list[wire.BagResult]:
        """Settle the results that do not run the user's code; return the other results."""
        others: list[wire.BagResult] = []
        for result in results:
            # Under the lock, so that a callback was either added before, or runs on the thread that adds it.
            with LOCK:
                future = self._held.get(result.item)
                if future is None:
                    continue  # cancelled here meanwhile
                if result.outcome != wire.Outcome.DONE or future.followed:
                    others.append(result)
                else:
                    future.set_result(Unread(result, self.bag, self._result_files))
                    del self._held[result.item]
        return others

    def value_of(self, result: wire.BagResult) -> Any:
        """Return the value of a call, or a `Raised`."""
        return value_of(result, self.bag, self._result_files)

    def take(self, index: int) -> GridFuture | None:
        """Take out the future of call ``index``; return None if another thread has taken it."""
        with LOCK:
            return self._held.pop(index, None)

    def take_unsent(self) -> list[GridFuture]:
        """Take out the futures of all unsent calls, which will then never be sent."""
        with LOCK:
            futures = list(self._waiting)
            self._waiting.clear()
        return futures

    def take_all(self) -> list[GridFuture]:
        """Take out every future."""
        with LOCK:
            futures = [*self.take_unsent(), *self._held.values()]
            self._held.clear()
        return futures

    def forked(self, error: DeskgridError) -> None:
        """Give every future ``error``, in a forked child: made anew, without the callbacks, which are the parent's."""
        for future in self.take_all():
            Future.__init__(future)
            future.set_exception(error)

    # --- sending -----------------------------------------------------------------------------------------------------

    def _send(self) -> None:
        """Tell the link's thread if there is something to send. The caller holds the lock."""
        more = bool(self._waiting) or (self._closing and not self._closed)
        if more and not self._asked and self._flying < WINDOW:
            self._link.send_latest(self._next_batch, self._answered, self._template)
            self._asked = True

    def _next_batch(self) -> wire.Submit | None:
        """Return the next message to send, if any. Runs on the link's thread."""
        with LOCK:
            self._asked = False
            first, calls = self._sent, self._next_calls()
            last = self._closing and not self._waiting
            self._closed = last
            if not calls and not (last and first):
                return None
            self._flying += 1
            message = self._message(first, calls, last)
            self._send()
        return message

    def _next_calls(self) -> list[_Call]:
        """Take the calls of the next batch."""
        calls = next(wire.in_batches(self._waiting.values(), payload_size), [])
        for _ in calls:
            future, _call = self._waiting.popitem(last=False)
            future.index = self._sent
            self._held[self._sent] = future
            self._sent += 1
        return calls

    def _message(self, first: int, calls: list[_Call], last: bool) -> wire.Submit:
        runtimes = [call.runtime for call in calls if call.runtime is not None]
        same = runtimes[0] if runtimes and len(set(runtimes)) == 1 else None
        return wire.Submit(
            request=self._link.number(),
            bag=self.bag,
            name=self._name,
            template=self._template.digest,
            first=first,
            payloads=tuple([call.payload for call in calls]),
            runtime=same,
            runtimes=() if same is not None else tuple(runtimes),
            options=self._options,
            last=last,
        )

    def _answered(self, reply: Reply | DeskgridError) -> None:
        """Handle the broker's acceptance or refusal of a batch. Runs on the link's thread."""
        if not isinstance(reply, wire.Accepted):
            self._forgotten = True
            self._ended(CallEnded(self, (), _error_in(reply, BagRejected)))
            return
        if reply.note and reply.note != self._note:
            self._note = reply.note
            log.warning("%s: %s", self._name, reply.note)
        with LOCK:
            self._flying -= 1
            self._send()
            watch = not self._watching
            self._watching = True
        if watch:
            self._watch(0)

    # --- results -----------------------------------------------------------------------------------------------------

    def _watch(self, after: int, *, defer: bool = False) -> None:
        self._link.send(wire.Watch(self._link.number(), self.bag, after), self._told, defer=defer)

    def _told(self, reply: Reply | DeskgridError) -> None:
        """Handle the results of calls that have ended. Runs on the link's thread."""
        try:
            if not isinstance(reply, wire.Outcomes):
                raise _error_in(reply, RequestFailed)
            results = results_of(reply)
        except DeskgridError as error:
            self._forgotten = True  # or this is no answer that can be trusted
            self._ended(CallEnded(self, (), error))
            return
        self._seen += len(results)
        self._forgets = self._forgets and not any(map(_has_files, results))
        if not (reply.closed and self._seen >= reply.total):
            self._watch(reply.after, defer=self._seen == self._sent)
        elif self._forgets:
            self._link.send(wire.Ask(self._link.number(), "forget", wire.pack_record({"bag": self.bag})), self._left)
        self._ended(CallEnded(self, results, None))

    def _left(self, _reply: Reply | DeskgridError) -> None:
        """Note that the broker has forgotten the calls, or never will: it may have been killed after it did."""
        self._forgotten = True

    # --- cancelling --------------------------------------------------------------------------------------------------

    def let_go(self, future: GridFuture) -> bool:
        """Take out ``future`` to cancel it; return False if it had already been taken out."""
        with LOCK:
            if future in self._waiting:
                del self._waiting[future]
            elif future.index is not None and future.index in self._held:
                self._to_cancel.append(future.index)
                self._send_cancel()
                del self._held[future.index]
            else:
                return False
        self._ended(CallEnded(self, (), None))
        return True

    def cancel_rest(self) -> None:
        """Cancel the calls that do not run yet; their futures are settled when the broker reports them."""
        if self.open:
            # "running": false leaves running calls alone, as Executor.shutdown does.
            self._order({"bag": self.bag, "items": None, "running": False}, _ignore)

    def cancel_all(self) -> None:
        """Cancel all calls, including running ones."""
        if self.open:
            with LOCK:
                self._order({"bag": self.bag, "items": None}, self._cancelled)
                self._cancelling += 1

    def _send_cancel(self) -> None:
        """Send the next cancel order, if any. The caller holds the lock."""
        if self._to_cancel and not self._cancelling:
            some = wire.QUESTION_ITEMS
            self._order({"bag": self.bag, "items": self._to_cancel[:some]}, self._cancelled)
            self._cancelling += 1
            del self._to_cancel[:some]

    def _cancelled(self, _reply: Reply | DeskgridError) -> None:
        """Send the next cancel order after the previous one was answered. Runs on the link's thread."""
        with LOCK:
            self._cancelling -= 1
            self._send_cancel()

    def _order(self, args: dict[str, Any], answered: Handler) -> None:
        self._link.send(wire.Ask(self._link.number(), "cancel", wire.pack_record(args)), answered)


class CallEnded(NamedTuple):
    """Calls to settle: those in ``results`` or, with ``error``, all calls of the stream."""

    stream: CallStream
    results: tuple[wire.BagResult, ...]
    error: DeskgridError | None


def _has_files(result: wire.BagResult) -> bool:
    """Whether a result has files, which are fetched when somebody reads it; or may have some."""
    return not isinstance(result.payload, bytes) or result.payload[:1] in (wire.MARK, wire.RANKS_MARK)


def settle_cancelled(future: Future[Any]) -> None:
    """Cancel a future that was taken out, and notify the threads that wait for it."""
    if Future.cancel(future):
        future.set_running_or_notify_cancel()


def _read(value: Any) -> Any:
    return value.value() if isinstance(value, Unread) else value


def _error_in(reply: Reply | DeskgridError, kind: type[DeskgridError]) -> DeskgridError:
    return reply if isinstance(reply, DeskgridError) else kind(getattr(reply, "reason", "an unexpected reply"))


def _ignore(_reply: Reply | DeskgridError) -> None:
    """Ignore the answer to an order."""
