"""Fetches calendars: from files, and from servers by HTTP.

Rule 1: what is read is bounded, in bytes here and in time by the process (``deskgrid.windows.calendar_process``).
Rule 2: a server is followed only to another place on itself: nobody who answers for it is to choose what else the
broker asks, or reads.
"""

import http.client
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import IO, NamedTuple
from urllib.parse import urlsplit

from deskgrid.windows.from_calendar import is_address
from deskgrid.windows.ical import CalendarError

# A calendar of ten years with 2,000 events in each: parsing it takes a few seconds.
CALENDAR_BYTES = 4 * 2**20
# A server that says nothing for so long has failed. Seconds.
SILENCE_S = 15.0


class Fetched(NamedTuple):
    """What was read. ``text``: None if it has not changed. ``etag``, ``modified``: for the next time."""

    text: str | None
    etag: str = ""
    modified: str = ""


def fetch(source: str, folder: Path, etag: str, modified: str) -> Fetched:
    """Read a calendar; file names are relative to ``folder``. Raises `CalendarError`."""
    try:
        if is_address(source):
            return _from_server(source, etag, modified)
        path = folder / source
        if not path.is_file():
            raise CalendarError("it is not a file" if path.exists() else f"there is no file {path}")
        with path.open("rb") as file:
            return Fetched(_text(file.read(CALENDAR_BYTES + 1)))
    except urllib.error.HTTPError as error:
        raise CalendarError(f"the server answered {error.code} {error.reason!s:.100}") from error
    except urllib.error.URLError as error:
        why = getattr(error.reason, "strerror", None) or error.reason
        raise CalendarError(f"the server cannot be reached: {why!s:.200}") from error
    except TimeoutError as error:
        raise CalendarError(f"the server said nothing for {SILENCE_S:g} s") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        if isinstance(error, CalendarError):
            raise
        raise CalendarError(f"it cannot be read: {error!s:.200}") from error


def _from_server(address: str, etag: str, modified: str) -> Fetched:
    if address.lower().startswith("webcal:"):
        address = "https" + address[len("webcal") :]
    request = urllib.request.Request(address, headers={"User-Agent": "deskgrid", "Accept": "text/calendar, */*;q=0.5"})
    if etag:
        request.add_header("If-None-Match", etag)
    if modified:
        request.add_header("If-Modified-Since", modified)
    try:
        with _opener().open(request, timeout=SILENCE_S) as answer:
            length = answer.headers.get("Content-Length", "")
            if length.isdecimal() and len(length) < 20 and int(length) > CALENDAR_BYTES:
                raise CalendarError(_too_large(f"{int(length):,} bytes"))
            data = answer.read(CALENDAR_BYTES + 1)
            if length.isdecimal() and len(data) != int(length):
                raise CalendarError("the server said less than it had promised")
            return Fetched(
                _text(data),
                _header(answer.headers, "ETag"),
                _header(answer.headers, "Last-Modified"),
            )
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == http.client.NOT_MODIFIED and (etag or modified):
            return Fetched(None, etag, modified)
        raise


def _opener() -> urllib.request.OpenerDirector:
    """Return what opens addresses of HTTP, and no others: not of files, not of FTP."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(context=ssl.create_default_context()),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        _SameHost(),
    ):
        opener.add_handler(handler)
    return opener


class _SameHost(urllib.request.HTTPRedirectHandler):
    """Follows a server to another place on itself."""

    def redirect_request(  # noqa: PLR0917
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        before, after = urlsplit(req.full_url), urlsplit(newurl)
        secure = ("http", "https").index(before.scheme.lower())
        if after.scheme.lower() not in ("http", "https")[secure:] or after.hostname != before.hostname:
            fp.close()
            where = f"{after.scheme}://{after.hostname or ''}"[:100]
            raise CalendarError(f"the server sends us to {where}: if that is right, write that address")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _text(data: bytes) -> str:
    if len(data) > CALENDAR_BYTES:
        raise CalendarError(_too_large("more"))
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CalendarError(f"it is not text in UTF-8: {error}") from error


def _too_large(what: str) -> str:
    return (
        f"it has {what} than {CALENDAR_BYTES:,} bytes"
        if what == "more"
        else f"it has {what}; the limit is {CALENDAR_BYTES:,}"
    )


def _header(headers: http.client.HTTPMessage, name: str) -> str:
    value = str(headers.get(name, ""))
    return value if len(value) <= 200 and value.isascii() and value.isprintable() else ""
