"""How many connections the broker may have, with the files that the system lets it open."""

import logging

from deskgrid.broker.port import tcp_info
from deskgrid.broker.port.connections import CONNECTIONS_LIMIT, SHARE

log = logging.getLogger("deskgrid.broker")

# Files that the broker needs besides connections: the journal, the log, a few for the interpreter. (And each connection
# may need one more: a large payload is mapped until it has been sent.)
OTHER_FILES = 100
# A broker that can take fewer connections than this refuses to start: half of them are for one key.
FEWEST_CONNECTIONS = 8


class TooFewFiles(Exception):
    """The limit on open files is too low for a broker; one line that says what to do."""


def connections_allowed() -> int:
    """How many. Raises `TooFewFiles`."""
    wanted, fewest = (2 * count + OTHER_FILES for count in (CONNECTIONS_LIMIT, FEWEST_CONNECTIONS))
    files = tcp_info.files_allowed(wanted)
    remedy = f"raise the limit with ulimit -n {wanted}, or LimitNOFILE={wanted} in a systemd unit"
    if files < fewest:
        raise TooFewFiles(f"the broker may open only {files} files and needs at least {fewest}: {remedy}")
    allowed = min(CONNECTIONS_LIMIT, (files - OTHER_FILES) // 2)
    if allowed < CONNECTIONS_LIMIT:
        row = files, allowed, allowed // SHARE, remedy
        log.warning("few-files limit=%d connections=%d by-one-key=%d; for more, %s", *row)
    return allowed
