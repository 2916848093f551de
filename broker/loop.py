"""The broker's loop. Its sockets are in `deskgrid.broker.port.sockets`.

Rule 1: read what has arrived and handle some of it, credentials in turns; settle, hand out work, commit, send: in this
order, always. A message with large payloads is heard when these are files, some turns later. What takes long, a long
message or shortening the journal's log, has a turn of its own: nobody waits for two of these.
Rule 2: never block on a peer. What a slow one does not take waits for it, within bounds; others do not wait for it.
Rule 3: an exception that nobody expected costs the peer whose message it was. What the turn did is undone, in the
journal and in memory alike: the sessions begin again from the journal.
"""

import logging
import math
import sqlite3
import time
from collections.abc import Callable

from deskgrid import wire
from deskgrid.broker.clients import RECEIPT_S
from deskgrid.broker.port.fair_queue import Arrival, FairQueue
from deskgrid.broker.port.penalties import Penalties
from deskgrid.broker.port.sockets import Sockets
from deskgrid.broker.port.value_writer import ValueWriter
from deskgrid.broker.sessions import Sessions
from deskgrid.broker.state import Leaving
from deskgrid.broker.store.files import Damaged
from deskgrid.broker.store.journal import Journal, JournalFull

log = logging.getLogger("deskgrid.broker")

# Messages that are read in a turn of the loop, and bytes of them: that costs some milliseconds. Whoever sends faster
# than messages are read and handled has too many waiting soon, and is cut off.
DRAIN = 1_000
DRAIN_BYTES = 8 * 2**20
# No more is read while so many bytes wait to be handled.
HELD_BYTES = 4 * wire.PAYLOAD_LIMIT
# How long messages are handled in one turn, before answers go out. Seconds. One message may take longer.
TURN_S = 0.01
# From this size on a message has a turn of its own: with the commit at its end it takes ten milliseconds and more.
LONG_BYTES = wire.BATCH_BYTES // 4
# How long the loop waits for a message before it looks at leases, at the windows file and at whether to stop. What says
# nothing new, as nearly every heartbeat, is settled no sooner than that: a thousand workers send 500 in a second.
TICK_S = 0.2
# What peers do wrong makes at most one line in the log in so long, lest one of them fill the disk. Seconds.
TELL_S = 1.0
# After a failure that is nobody's message's, one message at a time is handled for so long. Seconds.
CAREFUL_S = 10.0
# So many failures in a row that are nobody's, and the broker gives up: to begin again does not help.
FAILURES_LIMIT = 10
# Where the disk itself fails, or has changed behind our back, to begin again would not help; some errors of SQLite's
# say that what we asked for was wrong.
BEYOND_US = (sqlite3.DatabaseError, Damaged)
OUR_FAULTS = (sqlite3.DataError, sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.NotSupportedError)
# How often the windows file is looked at.
WINDOWS_S = 1.0
# Heartbeats that come so close on each other are taken several at a time, for which the loop rests a little when it has
# heard nothing else for a while: to be woken costs more than to hear one. With fewer than a hundred workers it never
# rests, and with more of them only the first message after a silence waits. Seconds.
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
        # Large payloads that were heard of in this turn: what is not recorded by its end never will be.
        self._heard: list[wire.Chunks] = []
        # The peer whose message is being handled, and its credential; while the loop is careful, it is kept until what
        # follows from the message is settled.
        self._suspect: tuple[bytes, str] | None = None
        self._careful_until = -math.inf
        self._failures = 0
        self._start = time.monotonic()
        self._windows_at = 0.0
        self._settle_at = 0.0
        self._quiet_at = -OFTEN_S
        # When something other than a heartbeat was last heard.
        self._heard_at = -math.inf
        # When each event was last told of in the log.
        self._told: dict[str, float] = {}
        # Peers that are not heard any more, until they are gone; and those that are gone, until all they said is heard.
        self._shut: set[bytes] = set()
        self._gone: list[bytes] = []

    def _now(self) -> float:
        return time.monotonic() - self._start

    def restore(self) -> None:
        """Take up what the journal remembers, before anybody is heard."""
        self._sessions.restore(self._now())

    def run(self, stopping: Callable[[], bool]) -> None:
        state = self._sessions.state
        state.waiting, state.crowded = self._sockets.waiting, self._sockets.crowded
        self._look_at_windows()
        while not stopping():
            arrived = self._sockets.wait(self._patience)
            self._gone += self._sockets.tend(self._now())
            self._turn(arrived)
        self._finish(self._sessions.farewell("the broker stops; it can be started again on the same home"))
        log.info("stopped")

    @property
    def _patience(self) -> float:
        """How long to wait for a message. Seconds."""
        if self._journal.log_is_long:
            return 0.0
        if self._sessions.unfinished or self._fair_queue:
            # What waits for the disk is not handled before that is done with something; then the loop is woken.
            return 0.0 if self._sessions.unfinished or self._fair_queue.next_is_ready(self._has_to_wait) else TICK_S
        return RECEIPT_S if self._sessions.owing else TICK_S

    def close(self) -> None:
        """Wait for what is on its way to the disk."""
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
        heard = self._hear()
        for name in self._sessions.state.revoked:
            self._fair_queue.drop(name)
            self._shut.update(self._value_writer.peers_of(name))
        if self._now() >= self._windows_at:
            self._look_at_windows()
        if self._sessions.unsettled or self._suspect or self._now() >= self._settle_at:
            self._settle_at = self._now() + TICK_S
            self._finish(self._sessions.settle(self._now()))
        elif heard and not self._fair_queue and self._now() >= self._heard_at + SILENCE_S:
            self._rest()
        if log_was_long:
            self._journal.shorten_log()
            self._release()
        if read_all and self._gone:
            self._gone = [peer for peer in self._gone if not self._let_go(peer)]
        if not self._careful:
            self._failures = 0

    def _rest(self) -> None:
        if self._now() < self._quiet_at + OFTEN_S:
            time.sleep(REST_S)
        self._quiet_at = self._now()

    # --- what arrives ------------------------------------------------------------------------------------------------

    def _read(self) -> bool:
        """Take in what has arrived, within bounds; whether that is all."""
        size = 0
        for _ in range(DRAIN):
            if size >= DRAIN_BYTES or self._fair_queue.size >= HELD_BYTES:
                return False
            received = self._sockets.receive()
            if received is None:
                return True
            peer, who, data, chunks = received
            if who is None:
                continue  # its key was revoked, or it was cut off: nothing of it is heard any more
            arrival = Arrival(peer, who, data, chunks)
            size += arrival.size
            if not self._fair_queue.put(arrival):
                self._warn("too-much-said credential=%r: one of its connections is cut off", who.name)
                self._sockets.give_up(peer)
        return False

    def _hear(self) -> bool:
        """Hear some of what was said; whether that was more than what had waited for the disk."""
        self._hear_waiting()
        # A careful loop may have heard one by now.
        return self._suspect is None and self._handle_some()

    def _handle_some(self) -> bool:
        """Handle what was read, credentials in turns, for as long as a turn may take; whether anything was."""
        end, waits, anything = self._now() + TURN_S, self._has_to_wait, False
        while (arrival := self._fair_queue.take(waits)) is not None:
            began = self._now()
            self._handle(arrival)
            self._fair_queue.took(arrival.who.name, self._now() - began)
            waits, anything = self._waits_for_a_turn, True
            if self._now() >= end or len(arrival.data) >= LONG_BYTES or self._careful:
                break
        return anything

    def _has_to_wait(self, arrival: Arrival) -> bool:
        if self._journal.log_is_long and len(arrival.data) >= LONG_BYTES:
            return True
        return not self._value_writer.has_room(arrival.peer, arrival.who.name, bool(arrival.chunks))

    def _waits_for_a_turn(self, arrival: Arrival) -> bool:
        return len(arrival.data) >= LONG_BYTES or self._has_to_wait(arrival)

    def _handle(self, arrival: Arrival) -> None:
        peer, who = arrival.peer, arrival.who
        if peer in self._shut:
            return
        if seconds := self._penalties.barred_s(who.name, self._now()):
            self._dismiss(peer, f"messages of {who.name} made the broker fail; try again in {seconds:.0f} s")
            return
        self._suspect = peer, who.name
        message: wire.Message | None = None
        try:
            message = wire.decode(arrival.data, arrival.chunks)
        except wire.ProtocolError as error:
            self._warn("garbage credential=%r bytes=%d reason=%r", who.name, len(arrival.data), str(error))
            self._send(peer, wire.Refused(f"that is not a message of deskgrid {wire.VERSION}: {error}"))
        else:
            values = wire.large_of(message) if arrival.chunks and self._sessions.records(peer, who, message) else []
            if self._value_writer.put(peer, who, message, values):
                self._suspect = None  # nothing has come of it yet
            else:
                self._sessions.receive(peer, who, message, self._now())
        if not isinstance(message, wire.Heartbeat):
            self._heard_at = self._now()
        self._heard_one()

    def _heard_one(self) -> None:
        """A message was handled; a careful loop looks first at what comes of it."""
        if not self._careful:
            self._suspect = None

    @property
    def _careful(self) -> bool:
        """Whether one message is handled in a turn, so that it is known whose makes the broker fail."""
        return self._now() < self._careful_until

    def _hear_waiting(self) -> None:
        """Hear messages whose large payloads are files by now."""
        for arrival in self._value_writer.ready():
            self._heard += arrival.values
            for kept in arrival.kept:
                try:
                    kept.result()
                except OSError as error:
                    raise JournalFull(str(error)) from error
            if arrival.peer not in self._shut:
                self._suspect = arrival.peer, arrival.who.name
                self._sessions.receive(arrival.peer, arrival.who, arrival.message, self._now())
                self._heard_one()
            if self._suspect:
                break

    def _let_go(self, peer: bytes) -> bool:
        """A peer is gone: whether everything that it said was heard, its goodbye perhaps, and it is forgotten."""
        if peer in self._value_writer or peer in self._fair_queue:
            return False
        self._shut.discard(peer)
        self._sessions.gone(peer)
        return True

    # --- what leaves -------------------------------------------------------------------------------------------------

    def _release(self) -> None:
        """Files that nobody needs, of what was heard and of what was forgotten, go."""
        values, heard, self._heard = self._journal.values, self._heard, []
        values.release(heard)
        if names := values.take_unneeded():
            self._value_writer.afterwards(lambda: values.remove(names))

    def _finish(self, leaving: Leaving) -> None:
        for peer, message in leaving.work:
            self._send(peer, message)
        if self._journal.waits and not leaving.words and self._sessions.owing:
            return  # soon there is a word to be sent, perhaps of how that work ended: one commit is enough for both
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
        """Hear nothing more of a peer, and tell it why. A worker is cut off: refused, it would end for good."""
        self._shut.add(peer)
        who = self._sockets.who(peer)
        if who is not None and who.role == "worker":
            self._sockets.give_up(peer)
            return
        self._send(peer, wire.Refused(reason))
        self._sockets.dismiss(peer)

    # --- when something goes wrong -----------------------------------------------------------------------------------

    def _begin_again(self, disk_full: str = "") -> None:
        """Go on as if killed before this batch, of which nobody was told anything, and started again."""
        self._journal.rollback()
        self._release()
        self._sessions = self._sessions.successor(self._now(), disk_full)

    def _recover(self, error: Exception) -> None:
        """Begin again without whoever made the broker fail. Raises ``error`` when that would not help.

        When it failed while nobody's message was handled, it handles one message at a time for a while: if it fails
        again, whoever sent that one is to blame.
        """
        if isinstance(error, BEYOND_US) and type(error) not in OUR_FAULTS:
            raise error
        # An order that failed says whose it was; the message that was handled before it did no harm.
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

    def _keep_out(self, peer: bytes, name: str) -> None:
        """``peer``, unless it has hung up, made the broker fail, and with it its credential."""
        self._penalties.add(name, self._now())
        if peer:
            self._sessions.gone(peer)
            self._dismiss(peer, "the broker failed when it handled your message; the reason is in its log")

    def _warn(self, event: str, *facts: object, error: Exception | None = None) -> None:
        """A line in the log, of each event at most one in `TELL_S`: no peer may fill the disk with them."""
        if self._now() >= self._told.get(event, -math.inf) + TELL_S:
            self._told[event] = self._now()
            log.warning(event, *facts, exc_info=error)

    def _look_at_windows(self) -> None:
        self._windows_at = self._now() + WINDOWS_S
        try:
            self._sessions.workers.refresh_windows()
        except ValueError as error:
            log.error("windows-file error=%r the last good one stays in force", str(error))
