"""`concurrent.futures` on the grid: chooses the bag of each call, and has the thread that settles futures.

Callbacks run on that thread. A callback may ask the grid anything, but a callback that waits for another future waits
forever, as with the executors of the standard library. The link's thread settles futures without callbacks, because
waking another thread would cost a tenth of a call's time.
"""

import logging
import queue
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from deskgrid import wire
from deskgrid.client.bag_files import BagFiles, KnownFiles, Noted, new_bag_id
from deskgrid.client.call_stream import CallEnded, CallStream, GridFuture, settle_cancelled
from deskgrid.client.carried import Carried, CarriedEnvironments
from deskgrid.client.link import Link
from deskgrid.client.lock import LOCK, PlainEvent, check_free
from deskgrid.client.payload import Raised
from deskgrid.client.replies import wait_for
from deskgrid.client.script_classes import ScriptClasses
from deskgrid.client.sources import StoredTree
from deskgrid.client.template import PYTHON, pickle_function
from deskgrid.errors import GridClosed
from deskgrid.sizes import size

if TYPE_CHECKING:
    from deskgrid.client.environments.asked import Env

log = logging.getLogger("deskgrid.client")

# Maximum number of functions with a bag of their own; the least recently called loses its bag. A program may make a
# function for each call (a lambda in a loop, say): beyond this number, a function travels with its arguments at first,
# in one bag for all of them, and has a bag of its own when it is called again.
OWN_BAGS = 16
# So many functions are remembered that have no bag.
REMEMBERED = 1_000
# A function that was sent more often than this, and whose repetitions have so many bytes in all, is named in a warning.
SENT_AGAIN = 3
SENT_AGAIN_BYTES = 2**20
# How long the end of the program waits until unsent calls are sent. Seconds.
FLUSH_S = 5.0
# How long it waits until the broker knows which calls are cancelled and which nobody needs any more: it may not read
# what a connection said just before its end. Shorter, because it is mostly somebody who pressed Ctrl-C who waits.
CANCEL_S = 1.0
_FLUSH_LOOK_S = 0.002


class _CallKey(NamedTuple):
    """Calls with the same key share a bag. ``module``: of a function that travels with its arguments, else None."""

    function: bytes
    module: str | None
    modules: tuple[str, ...]
    name: str
    env: "Env | None"
    options: wire.TaskOptions
    predicted: bool


class Futures:
    """All calls that were submitted one by one to one Grid."""

    def __init__(self, link: Link, known: KnownFiles, environments: CarriedEnvironments) -> None:
        self._link = link
        self._known = known
        self._environments = environments
        # All calls are of one program: the processes that run them may keep what earlier calls left.
        self._program = secrets.token_hex(8)
        # Held while a stream is begun, which may ask the broker. Who holds it may take the lock, and not the reverse.
        self.beginning = threading.RLock()
        # The streams, with what their bags bring; the least recently used comes first.
        self._by_key: OrderedDict[_CallKey, tuple[CallStream, Carried]] = OrderedDict()
        self._streams: list[CallStream] = []
        self._sendings = Sendings()
        self._inbox: queue.SimpleQueue[CallEnded | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._idle = PlainEvent()
        self._closed = False
        self._afterwards: Callable[[], object] | None = None
        self._owner: object = None

    def submit(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        name: str,
        modules: tuple[str, ...],
        env: "Env | None",
        options: wire.TaskOptions,
        runtime: float | None,
        owner: object,
    ) -> Future[Any]:
        """Submit one call. ``owner`` is kept alive until all futures are settled. Raises `BagRejected`."""
        if not threading.main_thread().is_alive():
            raise GridClosed("this program ends, and takes no more calls")  # nobody would wait for it
        check_free(self.beginning)
        noted = Noted(self._known)
        pickled = noted.pickled(lambda: pickle_function(function))
        common = noted.trees
        key = _CallKey(pickled, None, modules, name, env, options, runtime is not None)
        if key not in self._by_key:
            known = self._sendings.note(name, pickled)
            if len(self._by_key) >= OWN_BAGS and not known:
                # By module, because a template contains the local modules as they were when it was made.
                module = str(getattr(function, "__module__", None))
                key = _CallKey(pickle_function(_caller()), module, modules, "calls", env, options, key.predicted)
                args, common = (function, *args), {}
        _, carried = self._by_key.get(key, (None, None))
        noted.classes = ScriptClasses(None if carried is None else carried.classes)
        payload = noted.pack_call(args, kwargs, f"an argument of {name}")
        if common or noted.trees:
            with self.beginning:
                files = self._stream(key, payload, noted, common).files
            files.need_once([*common.values(), *noted.trees.values()])
            files.send()
        with self.beginning:
            stream = self._stream(key, payload, noted, common)
            with LOCK:
                if self._closed:
                    raise closed()
                future = stream.submit(payload, runtime)
                self._owner = owner
        self._link.wake()
        return future

    def _stream(
        self, key: _CallKey, payload: wire.Payload, noted: Noted, common: Mapping[bytes, StoredTree]
    ) -> CallStream:
        """Return the stream for a call of ``key``, a new one if it needs more modules. The caller is ``beginning``.

        ``noted``: with the functions that travel by value; ``common``: files that every call needs.
        """
        if self._closed:
            raise closed()
        stream, carried = self._by_key.get(key, (None, None))
        if stream is not None and carried is not None:
            self._by_key.move_to_end(key)
            if stream.full or carried.lacks(payload, noted.classes):
                stream = None
        if stream is None:
            named = carried.named if carried is not None else set()
            stream = self._begin(key, payload, noted, b"".join(common), named)
        if self._thread is None:
            thread = threading.Thread(target=self._settle_all, name="deskgrid-futures", daemon=True)
            thread.start()
            self._thread = thread
        return stream

    def _begin(self, key: _CallKey, payload: wire.Payload, noted: Noted, inputs: bytes, named: set[str]) -> CallStream:
        """Begin the bag of a call. ``inputs``: what `_stream` has in common; ``named``: modules of earlier calls."""
        files = BagFiles(self._link, self._known, new_bag_id())
        carried = Carried(
            key.function,
            key.name,
            modules=key.modules,
            inputs=inputs,
            env=key.env,
            environments=self._environments,
            files=files,
        )
        carried.classes, trees = noted.classes, noted.trees
        classes = noted.pickled(noted.classes.pickled)
        needed, noted.trees = noted.trees, trees
        files.need(needed.values())
        functions = list((noted.functions or {}).values())
        template = carried.template([payload], functions, named, classes, b"".join(needed))
        files.send()
        options = replace(key.options, program=self._program, python=PYTHON)
        stream = CallStream(self._link, template, key.name, options, self._ended, files=files)
        with LOCK:
            if self._closed:
                raise closed()
            self._streams = [each for each in self._streams if not each.over] + [stream]
            if key in self._by_key:
                self._by_key[key][0].close()
            elif len(self._by_key) > OWN_BAGS:
                self._by_key.popitem(last=False)[1][0].close()
            self._by_key[key] = stream, carried
        return stream

    # --- closing -----------------------------------------------------------------------------------------------------

    def close(self, cancel: bool) -> None:
        """Take no more calls; with ``cancel``, cancel those that do not run yet."""
        with LOCK:
            self._closed = True
            streams = list(self._streams)
        for stream in streams:
            if cancel:
                for future in stream.take_unsent():
                    settle_cancelled(future)
                stream.cancel_rest()
            stream.close()
        self._look()

    def abort(self) -> None:
        """Take no more calls and cancel all calls; nobody will collect their results."""
        with LOCK:
            self._closed = True
            streams = list(self._streams)
        for stream in streams:
            stream.cancel_all()
            for future in stream.take_all():
                settle_cancelled(future)
            stream.close()
        self._look()

    def forked(self, error: GridClosed) -> None:
        """Give every future ``error``, in a forked child: no thread is here that could settle them."""
        self.beginning, self._idle = threading.RLock(), PlainEvent()
        self._closed = True
        for stream in self._streams:
            stream.forked(error)
        self._idle.set()

    @property
    def open(self) -> bool:
        """Whether calls have not ended."""
        return any(stream.open for stream in self._streams)

    def wait(self) -> None:
        """Wait until every future is settled, after `close`."""
        wait_for(self._idle)

    def afterwards(self, action: Callable[[], object]) -> None:
        """Do ``action`` when every future is settled, after `close`."""
        self._afterwards = action
        self._look()

    def flush(self) -> None:
        """Wait for unsent calls to be sent, at most FLUSH_S, and for cancelled ones to be known, at most CANCEL_S."""
        self._wait_while(lambda stream: stream.unsent, FLUSH_S)
        self._wait_while(lambda stream: stream.cancelling or stream.leaving, CANCEL_S)

    def _wait_while(self, busy: Callable[[CallStream], bool], seconds: float) -> None:
        end = time.monotonic() + seconds
        never = threading.Event()
        while any(busy(stream) for stream in self._streams) and time.monotonic() < end:
            never.wait(_FLUSH_LOOK_S)

    def stop(self) -> None:
        """End the thread."""
        self._inbox.put(None)
        if self._thread is not None and threading.current_thread() is not self._thread:
            self._thread.join(FLUSH_S)

    # --- settling ----------------------------------------------------------------------------------------------------

    def _ended(self, ended: CallEnded) -> None:
        """Handle the end of calls. Calls without callbacks are settled here, the others by our thread.

        After `close`, our thread is told of every end, so that it notices when everything is settled and all callbacks
        have returned.
        """
        rest = ended.stream.settle(ended.results)
        if rest or not ended.results or self._closed:
            self._inbox.put(ended._replace(results=tuple(rest)))
        elif not ended.stream.open:
            self._disown()

    def _disown(self) -> bool:
        """Release the owner if all futures are settled; return whether they are."""
        with LOCK:
            settled = not any(stream.open for stream in self._streams)
            # If this is the last reference, the owner must be destroyed only after the lock is released.
            _owner = self._owner
            if settled:
                self._owner = None
        return settled

    def _settle_all(self) -> None:
        while (ended := self._inbox.get()) is not None:
            self._settle(ended)
            self._look()

    def _settle(self, ended: CallEnded) -> None:
        if ended.error is not None:
            with LOCK:
                for key in [key for key, each in self._by_key.items() if each[0] is ended.stream]:
                    del self._by_key[key]
            for future in ended.stream.take_all():
                _settle_safely(future, Raised(ended.error))
        for result in ended.results:
            taken = ended.stream.take(result.item)
            if taken is not None:  # otherwise it was cancelled here meanwhile
                cancelled = result.outcome == wire.Outcome.CANCELLED
                _settle_safely(taken, None if cancelled else ended.stream.value_of(result), cancelled=cancelled)

    def _look(self) -> None:
        """Notify the waiting threads if everything is settled after `close`."""
        complete = self._closed  # read first: once closed, no call is added
        if self._disown() and complete:
            self._idle.set()
            if self._afterwards is not None:
                self._afterwards()


def closed() -> GridClosed:
    """Return the error for using a Grid that was shut down."""
    return GridClosed("this Grid was shut down; open another")


def _settle_safely(future: GridFuture, value: Any, *, cancelled: bool = False) -> None:
    try:
        settle_cancelled(future) if cancelled else _settle_one(future, value)
    except BaseException:  # a callback that raises SystemExit, say, must not leave the others unsettled
        log.exception("a callback of a future failed")


def _settle_one(future: GridFuture, value: Any) -> None:
    if not future.set_running_or_notify_cancel():
        return
    if isinstance(value, Raised):
        future.set_exception(value.error)
    else:
        future.set_result(value)


@dataclass(slots=True)
class _SentFunctions:
    """What was sent as functions of one name. ``again``: bytes after those of the first."""

    last: bytes = b""
    times: int = 0
    again: int = 0
    told: bool = False


class Sendings:
    """The functions that a program has sent lately, so that it is told if it sends much of them again and again."""

    def __init__(self) -> None:
        self._digests: OrderedDict[bytes, None] = OrderedDict()
        self._by_name: OrderedDict[str, _SentFunctions] = OrderedDict()

    def note(self, name: str, pickled: bytes) -> bool:
        """Note that the function ``name`` is sent; return whether it was sent lately. Warn if it is sent often."""
        digest = blake2b(pickled, digest_size=16).digest()
        known, sent = digest in self._digests, self._by_name.get(name) or _SentFunctions()
        changed = digest != sent.last
        sent.last, sent.again, sent.times = digest, sent.again + len(pickled) * (sent.times > 0), sent.times + 1
        if sent.times > SENT_AGAIN and sent.again >= SENT_AGAIN_BYTES and not sent.told:
            sent.told = True
            why = f"this program calls more than {OWN_BAGS} functions in turn"
            log.warning(
                "%s is sent again and again, %s each time: %s. If it refers to large data, pass that as an argument, "
                "made by grid.share",
                name,
                size(len(pickled)),
                "it, or what it refers to, changes between calls" if changed else why,
            )
        _remember(self._digests, digest, None)
        _remember(self._by_name, name, sent)
        return known


def _remember(known: "OrderedDict[Any, Any]", key: object, value: object) -> None:
    known[key] = value
    known.move_to_end(key)
    if len(known) > REMEMBERED:
        known.popitem(last=False)


def _caller() -> Callable[..., Any]:
    # A nested function travels by value: tasks on a worker cannot import our modules.
    def call(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call
