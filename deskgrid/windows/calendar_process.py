"""Reads a calendar in a process of its own, with limits of time and memory: a calendar can stop nobody.

Each side says one line of JSON, and after it the text of the calendar: what is kept of it, and what was fetched.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from deskgrid.windows.fetch import Fetched, fetch
from deskgrid.windows.from_calendar import CalendarAnswer, CalendarRequest, rule_of, shown, table_of
from deskgrid.windows.ical import CalendarError, CalendarEvents, read_calendar
from deskgrid.windows.weekly import PlanError
from deskgrid.wire.text import clean

# One calendar may take so long, from the first byte to the tables. Seconds.
LIMIT_S = 120.0
# What the process may use. Bytes.
MEMORY = 2**30
# How far it gives way to the broker; not as far as possible: on a busy machine it would not end in time.
NICE = 5
# What is said of one table. Characters.
PROBLEM_CHARACTERS = 400

Process = subprocess.Popen[bytes]


def read_in_process(
    request: CalendarRequest, started: Callable[[Process], None] = lambda process: None
) -> CalendarAnswer:
    """Return what a process says of a calendar. ``started``: is told the process, to end it.

    If what is new ends the process, what is kept is read by another one.
    """
    told = _in_process(request, started)
    if told.error and not told.made and request.tables and request.text is not None:
        kept = _in_process(replace(request, fresh=False), started)
        told = replace(told, made=kept.made, doubts=kept.doubts)
    # A server, or who wrote an event, has chosen a part of this.
    return replace(told, error=clean(told.error), doubts=[clean(each) for each in told.doubts])


def _in_process(request: CalendarRequest, started: Callable[[Process], None]) -> CalendarAnswer:
    # The address is no argument: others on this machine could read it, and it may have a secret in it.
    command = [sys.executable, "-m", "deskgrid.windows.calendar_process"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        started(process)
        try:
            told, complaint = process.communicate(_packed(asdict(request)), LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return CalendarAnswer(f"it takes more than {LIMIT_S:g} s to read it")
    try:
        return CalendarAnswer(**_unpacked(told))
    except (ValueError, TypeError):
        last = complaint.decode(errors="replace").strip().rpartition("\n")[2][:200]
        return CalendarAnswer(f"the process that reads it has ended: {last or process.returncode}")


def answer(request: CalendarRequest) -> CalendarAnswer:
    """Fetch a calendar and make the tables, in this process."""
    error, text, etag, modified = "", request.text, request.etag, request.modified
    try:
        fetched = Fetched(None)
        if request.fresh:
            fetched = fetch(request.source, Path(request.folder), etag if text else "", modified if text else "")
        fresh = text if fetched.text is None else fetched.text
        assert fresh is not None
        events = read_calendar(fresh, request.begin, request.end)
        text, etag, modified = fresh, fetched.etag, fetched.modified
    except CalendarError as wrong:
        error = str(wrong)
        if text is None:
            return CalendarAnswer(error)
        try:
            events = read_calendar(text, request.begin, request.end)
        except CalendarError:
            return CalendarAnswer(error)
    except MemoryError:
        return CalendarAnswer("it takes too much memory to read it")
    made, doubts = _tables(request, events)
    return CalendarAnswer(error, made, doubts, etag, modified, None if text == request.text else text)


def _tables(request: CalendarRequest, events: CalendarEvents) -> tuple[dict[str, str], list[str]]:
    made: dict[str, str] = {}
    doubts = dict.fromkeys(events.doubts)
    for text in request.tables:
        whole = json.loads(text)
        try:
            rule = rule_of(whole, "calendar")
        except PlanError:  # another version of us has written it
            continue
        times = [
            each for each in events.times(rule.events, rule.zone) if each[1] > request.begin and each[0] < request.end
        ]
        if not times:
            what = f"no event is called {' or '.join(map(repr, rule.events))}" if rule.events else "it has no events"
            means = "always there" if rule.invert else "closed"
            doubts[f"{what} in the coming weeks: PCs are {means}"] = None
        made[text], doubt = table_of(whole, rule, rule.windows(times, request.begin, request.end))
        if doubt:
            doubts[doubt] = None
    return made, [f"{shown(request.source)}: {each}"[:PROBLEM_CHARACTERS] for each in doubts]


def _packed(row: dict[str, Any]) -> bytes:
    text = row.pop("text")
    head = json.dumps({**row, "kept": text is not None}).encode()
    return head + b"\n" + (text or "").encode()


def _unpacked(data: bytes) -> dict[str, Any]:
    head, _, text = data.partition(b"\n")
    row: dict[str, Any] = json.loads(head)
    row["text"] = text.decode() if row.pop("kept") else None
    return row


def main() -> None:
    """Answer one request."""
    if hasattr(os, "nice"):
        os.nice(NICE)
    if sys.platform != "win32":
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_AS)
        limit = MEMORY if most == resource.RLIM_INFINITY else min(MEMORY, most)
        resource.setrlimit(resource.RLIMIT_AS, (limit, most))
    request = CalendarRequest(**_unpacked(sys.stdin.buffer.read()))
    sys.stdout.buffer.write(_packed(asdict(answer(request))))


if __name__ == "__main__":
    main()
