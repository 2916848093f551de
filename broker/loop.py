"""The broker's loop. Its sockets are in `deskgrid.broker.port.sockets`.

Rule 1: a turn reads messages and handles some of them, credentials taking turns; then it settles, hands out work,
commits and sends, always in this order. A message with large payloads is handled some turns later, when these are in
files. Each slow step (a long message, or shortening the journal's log) has a turn of its own, so that nobody waits for
two of them.
Rule 2: never block on a peer. Messages for a slow peer wait for it, within bounds; messages for other peers do not
wait.
Rule 3: after an unexpected exception only the peer whose message caused it is dropped. Everything that the turn did is
undone, in the journal and in memory: new sessions are restored from the journal. If memory or the disk ran out, nobody
is to blame, and nobody is dropped.
"""

import logging
import math
import sqlite3
import time
from collections.abc import Callable

from deskgrid import wire
from deskgrid.broker.model.state import Leaving
from deskgrid.broker.peers.sessions import Sessions
from deskgrid.broker.peers.watchers import RECEIPT_S
from deskgrid.broker.port.fair_queue import SHORT_S, FairQueue, ReadMessage
from deskgrid.broker.port.penalties import Penalties
from deskgrid.broker.port.sockets import Sockets
from deskgrid.broker.port.value_writer import ValueWriter
from deskgrid.broker.port.wake import wake
from deskgrid.broker.store.files import Damaged
from deskgrid.broker.store.journal import Journal, JournalFull
from deskgrid.durations import duration
from deskgrid.process_memory import Garbage

log = logging.getLogger("deskgrid.broker")

# The most messages and bytes read in one turn of the loop: this takes some milliseconds. A peer that sends faster than
# its messages are handled soon has too many waiting, and is cut off.
DRAIN = 1_000
DRAIN_BYTES = 8 * 2**20
# Nothing more is read while this many bytes wait to be handled.
HELD_BYTES = 4 * wire.PAYLOAD_LIMIT
# But if one credential has more than this waiting by then, it is cut off instead: one largest message and something.
HEAVY_BYTES = 5 * wire.PAYLOAD_LIMIT // 4
# How long messages are handled in one turn before answers are sent. A single message may take longer. Seconds.
TURN_S = 0.01
# A message of at least this size has a turn of its own: with its commit it takes ten milliseconds or more.
LONG_BYTES = wire.BATCH_BYTES // 4
# How long the loop waits for a message before it checks leases, the files in the home and whether to stop. Seconds.
TICK_S = 0.2
# Each kind of misbehaviour is logged at most once in this time, so that no peer can fill the disk. Seconds.
TELL_S = 1.0
# After a failure that cannot be blamed on a message, messages are handled one per turn for this long. Seconds.
CAREFUL_S = 10.0
# After more of these failures in a row than this the broker gives up: starting again does not help.
FAILURES_LIMIT = 10
# Nor does it help if memory has run out more often than that within this time: then the broker ends. Seconds.
SHORT_FOR_S = 60.0
# Starting again does not help either if the disk fails or its content has changed. But some SQLite errors only say that
# the broker asked for something wrong.
BEYOND_US = (sqlite3.DatabaseError, Damaged)
OUR_FAULTS = (sqlite3.DataError, sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.NotSupportedError)
# How often the files in the home (windows, shares, licences) and the machine's clock are checked. Seconds.
FILES_S = 1.0
# When only heartbeats have arrived for `SILENCE_S`, less than `OFTEN_S` apart, the loop sleeps for `REST_S` to handle
# several of them at once, because waking up costs more than handling one. With fewer than a hundred workers the loop
# never sleeps. With more, only the first message after a silence has to wait. Seconds.
OFTEN_S = 0.02
REST_S = 0.03
SILENCE_S = 0.5


class Loop:
    """Drain, settle, hand out, commit, send."""

    def __init__(self, sessions: Sessions, sockets: Sockets, journal: Journal) -> None:
        self._sessions = sessions
        self._sockets = sockets
        self._journal = journal
        self._value_writer = ValueWriter((journal.values.keep, journal.values.sum_up), sockets.wake)
        self._fair_queue = FairQueue()
        self._penalties = Penalties()
        self._garbage = Garbage()
        # Large payloads of messages handled in this turn. A payload that is not recorded at the end of the turn never
        # will be.
        self._payloads: list[wire.Chunks] = []
        # The peer whose message is being handled, and its credential. A careful loop keeps them until the message is
        # settled.
        self._suspect: tuple[bytes, str] | None = None
        self._careful_until = -math.inf
        self._failures = 0
        # When memory ran out lately.
        self._short_at: list[float] = []
        self._start = time.monotonic()
        self._files_at = 0.0
        self._quiet_at = -OFTEN_S
        # When something other than a heartbeat was last handled.
        self._active_at = -math.inf
        # When each event was last logged.
        self._logged_at: dict[str, float] = {}
        # Peers whose messages are ignored until their connections end; and peers whose connections have ended, until
        # their messages are handled.
        self._ignored: set[bytes] = set()
        self._gone: list[bytes] = []

    def _now(self) -> float:
        return time.monotonic() - self._start

    def _posix(self) -> float:
        return time.time()

    def restore(self) -> None:
        """Restore the sessions from the journal, before any message. Raises `Damaged`."""
        self._sessions.restore(self._now())

    def run(self, stopping: Callable[[], bool]) -> None:
        """Serve until ``stopping()``. Raises errors that the broker cannot recover from."""
        state = self._sessions.state
        state.waiting, state.crowded = self._sockets.waiting, self._sockets.crowded
        self._look_at_files()
        with self._garbage.full_collections_deferred():
            while not stopping():
                arrived = self._sockets.wait(self._patience)
                self._gone += self._sockets.tend(self._now())
                self._turn(arrived)
                self._garbage.collect(self._now(), idle=self._now() >= self._active_at + SILENCE_S)
        self._finish(self._sessions.farewell("the broker stops; start it again with the same home to continue"))
        log.info("stopped")

    @property
    def _patience(self) -> float:
        """How long to wait for a message. Seconds."""
        if self._journal.log_is_long:
            return 0.0
        if self._sessions.unfinished or self._fair_queue:
            # When only messages that wait for the disk are left, the value writer wakes the loop.
            return 0.0 if self._sessions.unfinished or self._fair_queue.next_is_ready(self._has_to_wait) else TICK_S
        return RECEIPT_S if self._sessions.owing else TICK_S

    def close(self) -> None:
        """Wait for files that are being written."""
        self._value_writer.close()

    def _turn(self, arrived: bool) -> None:
        """Read, decide, commit and send."""
        self._suspect = None
        try:
            self._go(arrived)
        except JournalFull as full:
            self._begin_again(str(full))
        except Exception as error:
            self._recover(error)

    def _go(self, arrived: bool) -> None:
        log_was_long = self._journal.log_is_long
        read_all = self._read() if arrived else True
        self._drop_revoked()
        self._handle_written()
        # A careful loop may have handled its one message already.
        handled = self._suspect is None and self._handle_some()
        self._drop_revoked()
        if self._now() >= self._files_at:
            self._look_at_files()
        self._finish(self._sessions.settle(self._now()))
        for mac, address in self._sessions.state.take_wakes():
            wake(mac, address)
        if log_was_long:
            self._journal.commit()  # ends a waiting transaction; a log is shortened between transactions
            self._journal.shorten_log()
            self._release()
        if read_all and self._gone:
            self._gone = [peer for peer in self._gone if not self._let_go(peer)]
        if not self._careful:
            self._failures = 0
        if handled and self._now() >= self._active_at + SILENCE_S and self._is_idle:
            self._rest()

    @property
    def _is_idle(self) -> bool:
        """Whether nothing waits: neither here nor for a peer to take it."""
        return not (self._fair_queue or self._sockets.sending or self._sessions.unfinished or self._sessions.owing)

    def _drop_revoked(self) -> None:
        """Drop the messages of credentials that were revoked: in the last turn, or by a message of this one."""
        for name in self._sessions.state.revoked:
            self._fair_queue.drop(name)
            self._ignored.update(self._value_writer.peers_of(name))

    def _rest(self) -> None:
        if self._now() < self._quiet_at + OFTEN_S:
            time.sleep(REST_S)
        self._quiet_at = self._now()

    # --- what arrives ------------------------------------------------------------------------------------------------

    def _read(self) -> bool:
        """Read messages that have arrived, within bounds, and return whether there are no more."""
        size = 0
        for _ in range(DRAIN):
            if size >= DRAIN_BYTES or (self._fair_queue.size >= HELD_BYTES and not self._make_room()):
                return False
            received = self._sockets.receive()
            if received is None:
                return True
            peer, who, data, chunks = received
            if who is None:
                continue  # its key was revoked, or it was cut off
            arrival = ReadMessage(peer, who, data, chunks)
            size += arrival.size
            if not self._fair_queue.put(arrival):
                self._warn("message-limit credential=%r: one of its connections is cut off", who.name)
                self._sockets.give_up(peer)
        return False

    def _make_room(self) -> bool:
        """Cut off the credential that has most waiting, if that is more than one message, so that others are read."""
        name, held = self._fair_queue.heaviest()
        if held <= HEAVY_BYTES:
            return False
        self._warn("queue-limit credential=%r bytes=%d: its connections are cut off", name, held)
        for peer in self._fair_queue.drop(name):
            self._sockets.give_up(peer)
        return True

    def _handle_some(self) -> bool:
        """Handle messages for at most `TURN_S`, credentials taking turns, and return whether there were any."""
        end, waits, anything = self._now() + TURN_S, self._has_to_wait, False
        while (arrival := self._fair_queue.take(waits)) is not None:
            began = self._now()
            self._handle(arrival)
            took = self._now() - began
            self._fair_queue.took(arrival.who, took)
            # After short messages, their answers go out before a message that takes long is handled.
            waits, anything = self._waits_for_a_turn if took < SHORT_S else waits, True
            if self._now() >= end or len(arrival.data) >= LONG_BYTES or self._careful:
                break
        return anything

    def _has_to_wait(self, arrival: ReadMessage) -> bool:
        if self._journal.log_is_long and len(arrival.data) >= LONG_BYTES:
            return True
        return not self._value_writer.has_room(arrival.peer, arrival.who.name, bool(arrival.chunks))

    def _waits_for_a_turn(self, arrival: ReadMessage) -> bool:
        is_long = len(arrival.data) >= LONG_BYTES or self._fair_queue.is_behind(arrival.who)
        return is_long or self._has_to_wait(arrival)

    def _handle(self, arrival: ReadMessage) -> None:
        peer, who = arrival.peer, arrival.who
        if peer in self._ignored:
            return
        if seconds := self._penalties.barred_s(who.name, self._now()):
            self._dismiss(peer, f"messages of {who.name} made the broker fail; try again in {duration(seconds)}")
            return
        self._suspect = peer, who.name
        message: wire.Message | None = None
        try:
            message = wire.decode(arrival.data, arrival.chunks)
        except wire.ProtocolError as error:
            self._warn("garbage credential=%r bytes=%d reason=%r", who.name, len(arrival.data), str(error))
            unlike = wire.unlike(version) if (version := wire.version_in(arrival.data)) else ""
            reason = unlike or f"that is not a message of deskgrid {wire.VERSION}: {error}"
            if unlike:
                self._sessions.turned_away(who, "", version, reason, self._now())
            self._send(peer, wire.Refused(reason))
        else:
            values = wire.large_of(message) if arrival.chunks and self._sessions.records(peer, who, message) else []
            if self._value_writer.put(peer, who, message, values):
                self._suspect = None  # it is handled later
            else:
                self._sessions.receive(peer, who, message, self._now())
        if not isinstance(message, wire.Heartbeat):
            self._active_at = self._now()
        self._handled_one()

    def _handled_one(self) -> None:
        """A message was handled. A careful loop keeps its suspect until the end of the turn."""
        if not self._careful:
            self._suspect = None

    @property
    def _careful(self) -> bool:
        """Whether only one message is handled per turn, to find out whose message makes the broker fail."""
        return self._now() < self._careful_until

    def _handle_written(self) -> None:
        """Handle messages whose large payloads are in files by now."""
        for arrival in self._value_writer.ready():
            self._payloads += arrival.values
            for kept in arrival.kept:
                try:
                    kept.result()
                except OSError as error:
                    raise JournalFull(str(error)) from error
            if arrival.peer not in self._ignored:
                self._suspect = arrival.peer, arrival.who.name
                self._sessions.receive(arrival.peer, arrival.who, arrival.message, self._now())
                self._handled_one()
            if self._suspect:
                break

    def _let_go(self, peer: bytes) -> bool:
        """Forget a peer that is gone if all its messages have been handled, and return whether it was forgotten."""
        if peer in self._value_writer or peer in self._fair_queue:
            return False
        self._ignored.discard(peer)
        self._sessions.gone(peer)
        return True

    # --- what leaves -------------------------------------------------------------------------------------------------

    def _release(self) -> None:
        """Remove files that nobody needs: those of unrecorded payloads and of forgotten bags."""
        values, payloads, self._payloads = self._journal.values, self._payloads, []
        values.release(payloads)
        if names := values.take_unneeded():
            self._value_writer.afterwards(lambda: values.remove(names))

    def _finish(self, leaving: Leaving) -> None:
        for peer, message in leaving.work:
            self._send(peer, message)
        if self._journal.waits and not leaving.words and self._sessions.owing:
            return  # a receipt is due in milliseconds, perhaps with the results of this work: one commit does for both
        self._journal.commit()
        self._release()
        for notice in self._sessions.state.take_notices():
            log.info("%s", notice)
        for peer, message in leaving.words:
            self._send(peer, message)

    def _send(self, peer: bytes, message: wire.Message) -> None:
        if not self._sockets.send(peer, wire.parts_of(message)):
            self._sessions.gone(peer)

    def _dismiss(self, peer: bytes, reason: str) -> None:
        """Ignore a peer from now on, and tell it why. A worker is only cut off: if refused, it would exit for good."""
        self._ignored.add(peer)
        who = self._sockets.who(peer)
        if who is not None and who.role == "worker":
            self._sockets.give_up(peer)
            return
        self._send(peer, wire.Refused(reason))
        self._sockets.dismiss(peer)

    # --- when something goes wrong -----------------------------------------------------------------------------------

    def _begin_again(self, disk_full: str = "") -> None:
        """Go on as if the broker had been killed before this turn and restarted: nobody has seen the turn's answers."""
        self._journal.rollback()
        self._release()
        self._sessions = self._sessions.successor(self._now(), disk_full)

    def _recover(self, error: Exception) -> None:
        """Start again without the peer that made the broker fail. Raises ``error`` when that would not help.

        If no message was being handled, the loop handles one message per turn for a while: if the broker fails again,
        the sender of that message is to blame.
        """
        if isinstance(error, BEYOND_US) and type(error) not in OUR_FAULTS:
            raise error
        if isinstance(error, MemoryError):
            self._free_memory(error)
            return
        # When an order failed, its owner is to blame, not the sender of the last message.
        suspect, self._suspect = self._sessions.suspect(self._suspect), None
        self._failures += suspect is None
        if self._failures > FAILURES_LIMIT:
            raise error
        self._warn("fault credential=%r", suspect[1] if suspect else None, error=error)
        if suspect is None:
            self._careful_until = self._now() + CAREFUL_S
        self._begin_again()
        if suspect is not None:
            self._keep_out(*suspect)

    def _free_memory(self, error: MemoryError) -> None:
        """Start again because memory has run out, which is nobody's fault. Raises ``error`` if that does not help."""
        self._short_at = [at for at in self._short_at if at > self._now() - SHORT_FOR_S] + [self._now()]
        if len(self._short_at) > FAILURES_LIMIT:
            raise error
        self._suspect = None
        self._warn("out-of-memory the turn is undone, and everybody repeats what was not answered", error=error)
        self._begin_again()

    def _keep_out(self, peer: bytes, name: str) -> None:
        """Penalise the credential that made the broker fail, and dismiss ``peer``, which is empty if it hung up."""
        self._penalties.add(name, self._now())
        if peer:
            self._sessions.gone(peer)
            self._dismiss(peer, "your message made the broker fail; its log says why")

    def _warn(self, event: str, *facts: object, error: Exception | None = None) -> None:
        """Log an event, at most once in `TELL_S`: peers must not fill the disk."""
        if self._now() >= self._logged_at.get(event, -math.inf) + TELL_S:
            self._logged_at[event] = self._now()
            log.warning(event, *facts, exc_info=error)

    def _look_at_files(self) -> None:
        self._files_at = self._now() + FILES_S
        state = self._sessions.state
        if jump := state.wall.follow(self._now(), self._posix()):
            state.note("clock-jumped", by_s=round(jump, 1))
        self._sessions.home_watch.look(self._now())
