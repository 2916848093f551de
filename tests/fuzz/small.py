"""A broker with low limits, which are soon reached: ``python -m tests.fuzz.small HOME HOST:PORT LEASE``.

It has no encryption, which would take most of the time of a flood.
"""

import sys

from deskgrid.broker.port import receive_budget
from tests import live

LIMIT = 64 * 2**20
LOOK_S = 0.1


def main(home: str, listen: str, lease_s: str) -> None:
    """Run it until its input ends."""
    receive_budget.BACKLOG_LIMIT, receive_budget.LOOK_S = LIMIT, LOOK_S
    live.main(home, listen, lease_s, insecure=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
