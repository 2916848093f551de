"""The files in the broker's home that people change: taken up, kept across restarts, and what is wrong with them."""

from contextlib import closing
from pathlib import Path

from deskgrid.broker.auth.keys import KeyRing
from deskgrid.broker.auth.roles import Credential
from deskgrid.broker.work.home_watch import HomeWatch
from deskgrid.windows.windows_file import WINDOWS, windows_file
from tests.broker.office import Office

NIGHTS = '["lab-*"]\nwindows = "daily 20-07"\n'


def watch_of(office: Office) -> HomeWatch:
    """What the broker does with the file in its home, in place of the one that tests write."""
    state = office.sessions.state
    state.windows_file = windows_file(state.journal.home)
    watch = HomeWatch(state, office.sessions.workers, office.sessions.usage)
    watch.restore()
    return watch


def test_a_file_that_is_broken_after_a_restart_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / WINDOWS
    file.write_text(NIGHTS)
    with closing(Office(tmp_path)) as office:
        watch_of(office).look(0.0)
        office.settle()
    file.write_text("oops")
    with closing(Office(tmp_path)) as office:
        watch_of(office).look(0.0)
        state = office.sessions.state
        assert state.windows_file.content.table_for("lab-1") == '{"windows": "daily 20-07"}'
        assert state.problems == [state.windows_file.problem]
        assert "what it said before still counts" in state.problems[0]


def test_a_file_that_is_broken_at_the_first_start_closes_pcs_without_windows(tmp_path: Path) -> None:
    (tmp_path / WINDOWS).write_text("oops")
    with closing(Office(tmp_path)) as office:
        watch = watch_of(office)
        watch.look(0.0)
        state = office.sessions.state
        assert office.worker("pc").join().windows == '{"closed": true}'
        assert "PCs without windows of their own are closed" in state.problems[0]
        assert any("home-file-wrong" in line for line in state.take_notices())
        watch.look(1.0)
        assert not any("home-file-wrong" in line for line in state.take_notices()), "it is said once"


def test_that_there_was_no_file_is_remembered_too(tmp_path: Path) -> None:
    with closing(Office(tmp_path)) as office:
        watch_of(office).look(0.0)
        office.settle()
    (tmp_path / WINDOWS).write_text("oops")
    with closing(Office(tmp_path)) as office:
        watch_of(office).look(0.0)
        assert office.worker("pc").join().windows is None


def test_what_is_probably_a_mistake_is_said_until_it_is_mended(tmp_path: Path) -> None:
    file = tmp_path / WINDOWS
    file.write_text(NIGHTS.replace("lab", "laab"))
    with closing(Office(tmp_path)) as office:
        watch, state = watch_of(office), office.sessions.state
        watch.look(0.0)
        assert state.problems == []
        office.worker("lab-1").join(uptime=None)
        watch.look(1.0)
        first, second = state.problems
        assert first == "windows.toml: no PC has a name like laab-*"
        assert second.startswith("windows.toml has no windows for lab-1")
        file.write_text(NIGHTS)
        watch.look(2.0)
        assert state.problems == []


def test_a_pc_that_has_a_key_counts_as_known_while_it_is_away(tmp_path: Path) -> None:
    (tmp_path / WINDOWS).write_text(NIGHTS + '["lib-*"]\nwindows = "daily 20-07"\n')
    keys = KeyRing(tmp_path)
    keys.add(Credential("lab-1", "worker"), b"x" * 32, 0.0)
    with closing(Office(tmp_path)) as office:
        watch, state = watch_of(office), office.sessions.state
        state.credentials = keys
        watch.look(0.0)
        assert state.problems == ["windows.toml: no PC has a name like lib-*"]


def test_while_the_disk_is_full_nothing_is_recorded(tmp_path: Path) -> None:
    with closing(Office(tmp_path)) as office:
        watch, state = watch_of(office), office.sessions.state
        watch.look(0.0)
        (tmp_path / WINDOWS).write_text(NIGHTS)
        state.disk.state = "full"
        watch.look(1.0)
        assert state.windows_file.content.table_for("lab-1") is not None
        assert state.journal.recovery.home_files()[WINDOWS] is None
        state.disk.state = "ok"
        watch.look(2.0)
        assert state.journal.recovery.home_files()[WINDOWS] == NIGHTS
