"""The files in the broker's home that people change while it runs: what they say counts at once, if it is right. Pure.

Rule 1: what a file said when it was last right is in the journal, so that a restart with a wrong file changes nothing.
Rule 2: what is wrong with a file, or probably a mistake, stays in the status document until it is mended.
"""

from deskgrid.broker.model.state import BrokerState
from deskgrid.broker.work.calendars import Calendars
from deskgrid.broker.work.usage import Usage
from deskgrid.broker.work.workers import WorkerSessions


class HomeWatch:
    """``windows.toml`` with its calendars, ``shares.toml`` and ``licences.toml``."""

    def __init__(self, state: BrokerState, workers: WorkerSessions, usage: Usage) -> None:
        self._state = state
        self._workers = workers
        self._usage = usage
        self._files = state.windows_file, state.shares_file, state.licences_file
        self._calendars = Calendars(state)
        self._kept: dict[str, str | None] = {}
        self._changes = -1
        self._has_looked = False

    def restore(self) -> None:
        """Begin with what the files said before a restart."""
        self._kept = self._state.journal.recovery.home_files()
        self._calendars.restore(self._kept)
        for file in self._files:
            if file.name in self._kept:
                file.restore(self._kept[file.name])
        windows = self._state.windows_file
        windows.content = self._calendars.resolved(windows.content, windows.content)

    def look(self, now: float) -> None:
        """Read the files that have changed, and pass on what they say."""
        state = self._state
        self._look_at_windows(now)
        for file in (state.shares_file, state.licences_file):
            if file.refresh():
                self._changes = -1
                self._usage.arrange(now)
                shares, licences = self._usage.describe()
                state.note("home-files", shares=shares, licences=licences)
        if state.disk.state != "full":
            self._keep()
        if self._changes != self._workers.changes:
            self._changes = self._workers.changes
            self._find_problems()

    def _look_at_windows(self, now: float) -> None:
        state, file = self._state, self._state.windows_file
        before = file.content
        is_new = file.refresh()
        if not (is_new or self._calendars.known) and self._has_looked:
            return  # most grids have no calendar
        self._has_looked = True
        if self._calendars.look(now) or is_new:
            self._changes = -1
            file.content = self._calendars.resolved(file.content, before)
            if is_new or file.content != before:
                self._workers.send_windows()
                state.note("windows-file", in_force=file.content.describe())

    def _keep(self) -> None:
        """Record what has changed."""
        for file in self._files:
            if not file.problem and (file.name not in self._kept or self._kept[file.name] != file.text):
                self._state.journal.keep_file(file.name, file.text)
                self._kept[file.name] = file.text
        if self._calendars.known or self._calendars.dropped:
            self._calendars.keep()

    def _find_problems(self) -> None:
        state = self._state
        wrong = [file.problem for file in self._files if file.problem]
        pcs = {*self._workers.pcs(), *self._workers.with_keys()}
        doubtful = state.windows_file.content.warnings(pcs, self._workers.unplanned())
        if self._calendars.known:
            wrong += self._calendars.problems()
            doubtful += self._calendars.doubts()
        for text in wrong:
            if text not in state.problems:
                state.note("home-file-wrong", reason=text)
        for text in doubtful:
            if text not in state.problems:
                state.note("home-file-doubtful", reason=text)
        state.problems = wrong + doubtful
