"""``shares.toml`` and ``licences.toml`` in the broker's home: who shares how much, and what licences the grid has.

shares.toml has a table for each share that is not what it would be without the file::

    [alice]                              # the name of the share
    weight = 2                           # twice what others get; 1 if it is missing
    keys = ["alice", "alice-laptop"]     # the credentials that have this share; the one of that name if it is missing

licences.toml says how many the grid has of each licence::

    matlab = 5

Both may be absent, come, change and go while the broker runs (`deskgrid.home_file`).
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deskgrid.home_file import HomeFile
from deskgrid.wire.task_options import LICENCE_NAME
from deskgrid.wire.text import name_error

SHARES = "shares.toml"
LICENCES = "licences.toml"
# Far more than anybody has.
WEIGHT_LIMIT = 1_000_000
COUNT_LIMIT = 1_000_000
# The share of an owner, and its weight, by owner.
Arranged = Mapping[str, tuple[str, float]]


def shares_file(home: Path) -> HomeFile[Arranged]:
    """The broker's ``shares.toml``."""
    return HomeFile(home / SHARES, read_shares)


def licences_file(home: Path) -> HomeFile[Mapping[str, int]]:
    """The broker's ``licences.toml``."""
    return HomeFile(home / LICENCES, read_licences)


def read_shares(table: Mapping[str, Any]) -> Arranged:
    """The share and weight of each owner. Raises ValueError."""
    found: dict[str, tuple[str, float]] = {}
    for share, rows in table.items():
        if not isinstance(rows, dict):
            raise ValueError(f"{share!r:.40} is no share: give it a table [{share}] with weight and keys")
        if unknown := sorted(rows.keys() - {"weight", "keys"}):
            raise ValueError(f"[{share}] has {unknown[0]!r:.40}; a share can only have weight and keys")
        weight, keys = rows.get("weight", 1), rows.get("keys", [share])
        if type(weight) not in (int, float) or not 0 < weight <= WEIGHT_LIMIT:
            raise ValueError(f"the weight of {share} must be a number above 0, not {weight!r:.40}")
        if not isinstance(keys, list) or any(not isinstance(key, str) or name_error(key) for key in keys):
            raise ValueError(f'{SHARES}: the keys of {share} are a list of names, such as ["{share}"]')
        for key in keys:
            if key in found:
                raise ValueError(f"the key {key} is in two shares, {found[key][0]} and {share}")
            found[key] = share, float(weight)
    return found


def read_licences(table: Mapping[str, Any]) -> Mapping[str, int]:
    """How many there are of each licence. Raises ValueError."""
    for name, many in table.items():
        if re.fullmatch(LICENCE_NAME, name) is None:
            raise ValueError(f"{name!r:.80} is not a name of up to 64 letters, digits and . _ -")
        if type(many) is not int or not 0 <= many <= COUNT_LIMIT:
            raise ValueError(f"{name} must be a number of licences, not {many!r:.40}")
    return dict(table)
