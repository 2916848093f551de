"""A bag without tasks, which had ended when it was made. The broker never hears of it."""

from collections.abc import Iterator
from typing import Any, NoReturn

from deskgrid import wire
from deskgrid.client.bag import Bag
from deskgrid.client.following import LogPiece
from deskgrid.errors import RequestFailed

_ENDED = {"median_s": 0.0, "low_s": 0.0, "high_s": 0.0, "confidence": 0.9, "why": ""}
_COUNTS = dict.fromkeys(("total", "done", "failed", "cancelled", "running", "waiting"), 0)
_ANSWERS: dict[str, dict[str, Any]] = {
    "progress": {**_COUNTS, "closed": True, "left_s": 0.0, "eta_s": 0.0, "eta_low_s": 0.0, "eta_high_s": 0.0},
    "eta": _ENDED,
    "cancel": {"cancelled": 0},
    "explain": {"text": ["the bag is empty: it had ended when it was made"]},
    "advise": {"now": _ENDED, "longer": (), "misfits": None},
}


class EmptyBag(Bag[Any, Any]):
    """Answers as a bag does that has ended."""

    def follow(self, item: int | None = None) -> Iterator[LogPiece]:
        """Yield nothing."""
        if item is not None:
            self._refuse(item)
        yield from ()

    def _ended(self, end: float = 0.0) -> Iterator[wire.BagResult]:
        yield from ()

    def _ask(self, what: str, *, seconds: float = 0.0, **args: Any) -> dict[str, Any]:
        if what == "logs" or args.get("item") is not None:
            self._refuse(args["item"])
        if what == "whatif":
            return {"rows": [_ENDED] * (1 + len(args["changes"]))}
        return _ANSWERS.get(what, {})

    def _refuse(self, item: int) -> NoReturn:
        raise RequestFailed(f"bag {self.id} has no item {item}: it is empty")
