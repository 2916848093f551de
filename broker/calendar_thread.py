"""Reads calendars for the broker, one after the other, each in a process of its own. The broker's loop never waits."""

from queue import SimpleQueue
from threading import Thread

from deskgrid.broker.model.calendar_reader import CalendarTicket
from deskgrid.windows.calendar_process import Process, read_in_process
from deskgrid.windows.from_calendar import CalendarAnswer, CalendarRequest


class CalendarThread:
    """A `CalendarReader` with a thread, which starts with the first calendar."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[tuple[CalendarRequest, CalendarTicket] | None] = SimpleQueue()
        self._thread: Thread | None = None
        self._process: Process | None = None
        self._closed = False

    def read(self, request: CalendarRequest) -> CalendarTicket:
        """See `CalendarReader`."""
        ticket = CalendarTicket()
        self._jobs.put((request, ticket))
        if self._thread is None:
            self._thread = Thread(target=self._serve, name="deskgrid-calendars", daemon=True)
            self._thread.start()
        return ticket

    def close(self) -> None:
        """End the thread and its process. Calendars that wait are not read."""
        self._closed = True
        self._jobs.put(None)
        if self._process is not None:
            self._process.kill()
        if self._thread is not None:
            self._thread.join()

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None and not self._closed:
            request, ticket = job
            try:
                ticket.answer = read_in_process(request, self._started)
            except Exception as error:  # without this thread, nobody would read a calendar again
                ticket.answer = CalendarAnswer(f"no process to read it could be started: {error!r:.200}")
            self._process = None

    def _started(self, process: Process) -> None:
        self._process = process
        if self._closed:
            process.kill()
