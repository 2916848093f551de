"""What PCs have told of themselves that is not well, and which PCs were not let in because of their version. Pure.

Rule 1: what a PC said last is kept while it is away. So one that was refused, or is off, is not forgotten.
Rule 2: only a PC with a key is kept longer than its workers are known. So there are no more than keys, and workers.
"""

from dataclasses import dataclass
from typing import Literal

from deskgrid import wire
from deskgrid.broker.auth.roles import Credential
from deskgrid.broker.model.forecaster import Json

# PCs in one answer. Each may have a few kibibytes.
PAGE = 50


@dataclass(slots=True)
class PcCheck:
    """What is known of one PC. ``at``: when it was said; None: it has not looked yet. ``refused``: it was not let in.

    ``key``: whether the PC has a key.
    """

    version: str
    key: bool
    at: float | None = None
    findings: tuple[wire.Finding, ...] = ()
    refused: bool = False


class PcChecks:
    """By the names of PCs."""

    def __init__(self) -> None:
        self._of: dict[str, PcCheck] = {}

    def joined(self, join: wire.Join, who: Credential) -> None:
        """A worker was let in: what its PC said before still counts, until it says something else."""
        before = self._of.get(join.name)
        if before is None or before.refused:
            self._of[join.name] = PcCheck(join.version, who.role == "worker")
        else:
            before.version, before.key = join.version, before.key or who.role == "worker"

    def heard(self, join: wire.Join, findings: tuple[wire.Finding, ...], now: float) -> None:
        """A worker of a PC says what is not well there. ``join``: how it has introduced itself."""
        key = self._of[join.name].key
        self._of[join.name] = PcCheck(join.version, key, now, findings)

    def refused(self, who: Credential, version: str, reason: str, now: float) -> None:
        """A PC was not let in."""
        if who.role == "worker":
            found = (wire.Finding("version", True, reason),)
            self._of[who.name] = PcCheck(version, True, now, found, refused=True)

    def left(self, pc: str) -> None:
        """No worker of a PC is known any more."""
        if (known := self._of.get(pc)) is not None and not known.key:
            del self._of[pc]

    def let_go(self, pc: str, *, others: bool) -> None:
        """The key of a PC was revoked. ``others``: workers with other keys say that they are on a PC of this name."""
        known = self._of.pop(pc, None)
        if known is not None and others:
            self._of[pc] = PcCheck(known.version, key=False)

    def page(self, after: str, now: float) -> Json:
        """Some PCs by name, behind ``after``."""
        names = sorted(name for name in self._of if name > after)
        rows = [{"pc": name, **_row(self._of[name], now)} for name in names[:PAGE]]
        return {"pcs": rows, "after": names[PAGE - 1] if len(names) > PAGE else None}


def _row(known: PcCheck, now: float) -> Json:
    state: Literal["refused", "checked", "unknown"]
    state = "refused" if known.refused else "unknown" if known.at is None else "checked"
    other = not known.refused and known.version != wire.VERSION
    found = [*known.findings, *([_other_version(known.version)] if other else [])]
    return {
        "state": state,
        "version": known.version,
        "age_s": None if known.at is None else max(0.0, now - known.at),
        "findings": [{"what": each.what, "to_do": each.to_do, "said": each.said} for each in found],
    }


def _other_version(version: str) -> wire.Finding:
    return wire.Finding("version", False, f"it runs deskgrid {version}, and the broker {wire.VERSION}")
