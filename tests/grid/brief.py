"""Messages in one line each, for the log of a failed run."""

from dataclasses import dataclass

from deskgrid import wire

# Attempt numbers begin anew, far up, in each life of a broker; this much of them tells enough.
SHORT = 0xFFFF
# No message is told at greater length.
LONGEST = 200


@dataclass(frozen=True, slots=True)
class Brief:
    """A message in one line, with what matters of it, made when somebody reads it."""

    message: wire.Message

    def __format__(self, _: str) -> str:
        return brief(self.message)


def brief(message: wire.Message) -> str:
    """What matters of ``message``."""
    name, text = type(message).__name__, ""
    match message:
        case wire.Assign():
            text = f"({message.opening}) {[(w.task, w.number & SHORT, w.slot) for w in message.work]}"
        case wire.Finished():
            text = f" {[(r.task, r.number & SHORT, r.outcome) for r in message.results]}"
        case wire.Join():
            text = f"({message.opening}) {message.kind} uptime {message.uptime} holds {_held(message.running)}"
        case wire.Leave():
            text = f" planned {message.planned} stopping {message.stopping} held {_held(message.held)}"
        case wire.Recall() | wire.Stop() | wire.Returned() | wire.Taken():
            text = f" {[(r.task, r.number & SHORT) for r in message.attempts]}"
        case wire.Submit():
            text = f"({message.request}) bag {message.bag} {message.first}+{len(message.payloads)} {message.last}"
        case _:
            text = str(message).removeprefix(name)
    return name + text[:LONGEST]


def _held(rows: tuple[wire.Running, ...]) -> list[tuple[int, int, float | None]]:
    return [(row.task, row.number & SHORT, row.elapsed) for row in rows]
