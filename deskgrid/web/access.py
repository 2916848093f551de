"""Who is let in: a token, which a browser exchanges for a cookie once. Pure, but for the file of the token.

Rule 1: without the token nothing of the grid is shown, also not to this machine: other people's tasks may run on it.
Rule 2: the cookie is signed with the token and says when it ends, so nothing is kept, and a new token ends all cookies.
Rule 3: a request names this server by an address, by "localhost" or by the machine's name. So the page of somebody
else, whose name was made to lead here, reads nothing.
"""

import hmac
import re
import secrets
import socket
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from pathlib import Path

from deskgrid.private_files import write_private
from deskgrid.wire.joinline import is_open_to_others

# How long a cookie is good for. Seconds.
COOKIE_S = 30 * 86_400
_TOKEN = re.compile(r"[\w-]{22,200}", re.ASCII)


class TokenError(Exception):
    """There is no good token; one line that says why."""


def read_token(path: Path) -> str:
    """The token in a file, which is made if there is none. Raises `TokenError`."""
    try:
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_private(path, f"{secrets.token_urlsafe(32)}\n".encode())
        if is_open_to_others(path):
            raise TokenError(f"{path} can be read by others: chmod 600 {path}, or remove it to have a new one made")
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise TokenError(f"{path}, which should hold the token of the web page, cannot be used: {error}") from error
    if not _TOKEN.fullmatch(token):
        raise TokenError(f"{path} holds no token: at least 22 letters and digits; remove it to have a new one made")
    return token


class Access:
    """``name``: of the cookie. Browsers give the cookies of a machine to all its ports, so each server has its own."""

    def __init__(self, token: str, name: str, hosts: frozenset[str] = frozenset()) -> None:
        self._token = token.encode()
        self._name = name
        self._hosts = hosts | {"localhost", *(host.lower() for host in (socket.gethostname(), socket.getfqdn()))}

    def is_token(self, text: str) -> bool:
        """Whether this is the token."""
        return hmac.compare_digest(text.encode(), self._token)

    def is_bearer(self, header: str) -> bool:
        """Whether a header "Authorization" has the token, as Prometheus sends it."""
        kind, _, text = header.partition(" ")
        return kind.lower() == "bearer" and self.is_token(text.strip())

    def cookie(self, now: float, *, secure: bool) -> str:
        """A new cookie, for a header "Set-Cookie". ``now``: POSIX seconds. ``secure``: for https only."""
        until = f"{now + COOKIE_S:.0f}"
        flags = "; HttpOnly; SameSite=Lax" + ("; Secure" if secure else "")
        return f"{self._name}={until}.{self._signed(until)}; Max-Age={COOKIE_S}{flags}"

    def is_cookie(self, header: str, now: float) -> bool:
        """Whether a header "Cookie" has a cookie of ours that is still good."""
        try:
            morsel = SimpleCookie(header).get(self._name)
        except CookieError:
            return False
        until, _, signed = morsel.value.partition(".") if morsel else ("", "", "")
        good = hmac.compare_digest(signed.encode(), self._signed(until).encode())
        return good and until.isdecimal() and int(until) > now

    def _signed(self, text: str) -> str:
        return hmac.digest(self._token, text.encode(), "sha256").hex()

    def is_host(self, header: str) -> bool:
        """Whether a header "Host" names this server."""
        found = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]]+)(:\d{1,5})?", header)
        if found is None:
            return False
        host = found[1].lower().rstrip(".")
        try:
            ip_address(host.strip("[]"))
        except ValueError:
            return host in self._hosts
        return True
