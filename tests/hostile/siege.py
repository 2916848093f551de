"""A real broker under attack by each role in turn, beside honest clients: no crash, error, memory growth or delay.

python -m tests.hostile.siege --count 1000000 --seed 1          what ``make soak`` runs
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from deskgrid.broker.auth.roles import Role
from tests.executor.rig import python_template
from tests.hostile.attacking import Order
from tests.hostile.forging import Known
from tests.hostile.lab import Lab, Latency, Pings, lab
from tests.hostile.limits import GROWTH, P99, WORST
from tests.live import ROOT
from tests.waiting import eventually

ROLES: tuple[Role | None, ...] = (None, "lab", "worker", "submitter")
# Messages in a second that an attacker sends at most: about half of what a broker takes of hostile ones on a machine of
# two cores, which has the attacker and the honest on it, too. Of more, the attacker takes the cores, not the broker.
PER_S = 2_500.0
# Seconds that pings are measured before the first attack; and how many times as long as planned an attack may take.
BASELINE_S, PATIENCE = 5.0, 3.0
# Between two looks at whether everybody lives. Seconds.
LOOK_S = 0.5


@dataclass(frozen=True, slots=True)
class Attacked:
    """What came of the attack of one role. ``grown``: the broker's memory above where it began, at most, so far."""

    role: str
    messages: int
    size: int
    seconds: float
    grown: int
    latency: Latency

    def __str__(self) -> str:
        sent = f"{self.role}: {self.messages:,} messages, {self.size / 2**20:,.0f} MiB in {self.seconds:.0f} s"
        return f"{sent}; memory +{self.grown / 2**20:.0f} MiB; {self.latency}"


class Attack:
    """A process of `tests.hostile.attacking`."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.hostile.attacking"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asdict(order)).encode() + b"\n")
        self._process.stdin.flush()

    @property
    def over(self) -> bool:
        return self._process.poll() is not None

    def end(self) -> dict[str, Any]:
        """End it, if it has not; what it sent."""
        said, _ = self._process.communicate()
        assert self._process.returncode == 0, f"the attacker failed, seed {self._order.seed}"
        return dict(json.loads(said))

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def siege(folder: Path, count: int, seed: int, per_s: float = PER_S) -> tuple[Latency, list[Attacked]]:
    """Attack with ``count`` messages for each role; how pings were before that, and what came of each.

    Raises `AssertionError` with the seed and the last messages when anybody dies, or a result is wrong.
    """
    with lab(folder) as place:
        place.worker(slots=2)
        customer = place.customer()
        with place.pinging() as pings:
            began = time.monotonic()
            eventually(lambda: False, BASELINE_S)
            quiet = (began, time.monotonic())
            known = _ours(place)
            orders = [_order(place, role, known, count, seed=seed, per_s=per_s) for role in ROLES]
            ended = [_attack(place, order) for order in orders]
        bags = len(customer.end())
        place.check()
    assert bags, "no honest bag was done"
    return pings.latency(*quiet), [_attacked(pings, *each) for each in ended]


def _ours(place: Lab) -> Known:
    """Work that an attacker is given and hears of, and what it knows of others."""
    mallory = place.client(place.key("submitter", "victim"))
    template = python_template(b"no pickle")
    bags = [mallory.submit([b"", b"x" * 100], template, runtime=1.0, last=False) for _ in range(3)]
    return Known(bags, [hashlib.sha256(template).hexdigest(), "0" * 64], ["honest", "evil", "evil2"], 10_000)


def _order(place: Lab, role: Role | None, known: Known, count: int, *, seed: int, per_s: float) -> Order:
    line = place.line("client", "client") if role is None else place.key(role, f"mallory-{role}")
    return Order(role, str(line), seed, count, per_s, PATIENCE * (count / per_s + 10.0), known)


def _attack(place: Lab, order: Order) -> tuple[dict[str, Any], "_Span"]:
    """What was sent, and when."""
    began = time.monotonic()
    with closing(Attack(order)) as attack:
        while not attack.over and place.is_alive:
            eventually(lambda: attack.over or not place.is_alive, LOOK_S)
        sent = attack.end()
    last = "\n".join(sent["last"])
    assert place.is_alive, f"seed {order.seed}, {order.role}: the broker died:\n{place.last_words}\nafter\n{last}"
    return sent, _Span(order.role or "no key", began, time.monotonic(), place.grown())


@dataclass(frozen=True, slots=True)
class _Span:
    role: str
    began: float
    until: float
    grown: int


def _attacked(pings: Pings, sent: dict[str, Any], span: _Span) -> Attacked:
    latency = pings.latency(span.began, span.until)
    return Attacked(span.role, sent["messages"], sent["bytes"], span.until - span.began, span.grown, latency)


def main() -> int:
    """Attack as the command line says; 1 when something does not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.siege", description="Hostile peers of every role.")
    parser.add_argument("--count", type=int, default=1_000_000, help="messages for each role")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--per-s", type=float, default=PER_S)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="deskgrid-siege-") as folder:
        quiet, attacks = siege(Path(folder), asked.count, asked.seed, asked.per_s)
    print(f"before: {quiet}", *attacks, sep="\n")
    bad = [each for each in attacks if each.messages < asked.count or not _holds(each)]
    print(f"siege, seed {asked.seed}: {'; '.join(map(str, bad)) or f'{len(attacks)} roles, nobody was harmed'}")
    return int(bool(bad))


def _holds(each: Attacked) -> bool:
    its = each.latency
    return each.grown <= GROWTH and its.p99 <= P99 * its.beat and its.worst <= WORST * its.beat


if __name__ == "__main__":
    sys.exit(main())
