"""The process manager of the ranks of an MPI program: PMI-1, as MPICH and its relatives speak it. Pure.

Each rank sends lines of ``key=value`` words and waits for the answer to each, one line as well. What one rank puts, all
others can get: the addresses at which they reach each other. At a barrier the ranks wait for the last of them.

Rule 1: whatever a rank says, it can harm only its own gang: `PmiError`, whose message names the rank.
Rule 2: memory is bounded: the lines of all ranks together that are kept, and the beginning of a line of each.
Rule 3: every line that changes something is handed to ``keep``, with the position of its end; `replay` of these lines
brings another server to the same state. Lines that only ask are not kept.
Rule 4: what a rank says twice, because an answer may have been lost, is answered with the same answer.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

# What the ranks are told of the longest names and values; a line has one of each.
NAME_MOST, KEY_MOST, VALUE_MOST = 256, 64, 1024
LINE_MOST = 4 * 2**10
# How many words each rank may put, and how many lines of it may be kept, which have these words or say that the rank is
# at a barrier. MPICH puts about ten, and has a few barriers when it begins and when it ends.
WORDS_EACH = 256
LINES_EACH = 1_000
# What may be kept of a gang, and of all gangs of a submitter: bytes of lines, and for each line what it takes besides.
# 1,024 ranks of MPICH say about 8 MiB.
KEPT_BYTES = 32 * 2**20
KEPT_BYTES_OF_OWNER = 64 * 2**20
LINE_BYTES = 200
MAPPING = "PMI_process_mapping"


class PmiError(Exception):
    """A rank said something that ends its gang; one line that says what."""


class PmiAborted(PmiError):
    """A rank ended the program on purpose (MPI_Abort)."""


@dataclass(slots=True)
class _Stream:
    """What one rank has said. ``read``: how many of its bytes; ``rest``: those after its last whole line.

    ``answer``, ``answered``: its last answer, and how many of its bytes had been read then. ``kept``: lines.
    """

    read: int = 0
    rest: bytes = b""
    answer: bytes = b""
    answered: int = 0
    kept: int = 0
    over: bool = False


class Reply(NamedTuple):
    """Bytes for a rank. ``start``: how many of its bytes they answer."""

    rank: int
    start: int
    data: bytes


Keep = Callable[[int, int, bytes], None]


class PmiServer:
    """The process manager of one attempt of a gang. ``size``: of the lines that are kept; bytes."""

    def __init__(self, name: str, hosts: Sequence[str], keep: Keep) -> None:
        """``name``: of its words. ``hosts``: the PC of each rank. ``keep``: is given a rank, a position and a line."""
        self._name = name
        self._size = len(hosts)
        self._keep = keep
        self.size = 0
        self._words = {MAPPING: process_mapping(hosts)}
        self._streams = [_Stream() for _ in hosts]
        # The ranks at the barrier, and where each one's line ended.
        self._waiting: dict[int, int] = {}
        self._restored = False
        self._fixed = {
            "get_maxes": f"cmd=maxes kvsname_max={NAME_MOST} keylen_max={KEY_MOST} vallen_max={VALUE_MOST}",
            "get_appnum": "cmd=appnum appnum=0",
            "get_my_kvsname": f"cmd=my_kvsname kvsname={name}",
            "get_universe_size": f"cmd=universe_size size={len(hosts)}",
            **{f"{name}_name": f"cmd={name}_result rc=-1 info=not_here" for name in ("publish", "unpublish", "lookup")},
        }
        self._handlers: dict[str, Callable[[int, dict[str, str]], str]] = {
            "init": self._init,
            "put": self._put,
            "get": self._get,
            "finalize": self._finalize,
            "abort": self._abort,
        }

    def receive(self, rank: int, start: int, data: bytes) -> list[Reply]:
        """Take bytes of a rank. Raises `PmiError`."""
        stream = self._streams[rank]
        if start > stream.read and self._restored:
            # It asked for something before the broker was started again.
            stream.read, stream.rest = start, b""
        if start > stream.read:
            raise PmiError(f"rank {rank} left out some of what it said to MPI's process manager")
        data = data[stream.read - start :]
        if not data:
            again = stream.answered > start and stream.answered == stream.read
            return [Reply(rank, stream.answered, stream.answer)] if again else []
        replies: list[Reply] = []
        *lines, rest = (stream.rest + data).split(b"\n")
        if max(map(len, [*lines, rest])) > LINE_MOST:
            raise PmiError(f"rank {rank} said a line of more than {LINE_MOST:,} bytes to MPI's process manager")
        at = stream.read - len(stream.rest)
        stream.read += len(data)
        for line in lines:
            at += len(line) + 1
            replies += self._line(rank, at, line)
        stream.rest = rest
        return replies

    def replay(self, rank: int, end: int, line: bytes) -> None:
        """Take a line that another server kept, in its order."""
        self._restored = True
        stream, keep = self._streams[rank], self._keep
        stream.read, self._keep = end, _forget
        self._line(rank, end, line)
        self._keep = keep

    # --- lines -------------------------------------------------------------------------------------------------------

    def _line(self, rank: int, end: int, line: bytes) -> list[Reply]:
        try:
            text = line.decode("ascii")
        except UnicodeDecodeError as error:
            raise PmiError(f"rank {rank} said to MPI's process manager what is not text") from error
        words = dict(word.partition("=")[::2] for word in text.split())
        what = words.get("cmd", "")
        if self._streams[rank].over:
            raise PmiError(f"rank {rank} went on speaking to MPI's process manager after its end")
        if what == "barrier_in":
            return self._barrier(rank, end, line)
        answer = self._answer(rank, what, words)
        if what in ("put", "finalize"):
            self._note(rank, end, line)
        return [self._tell(rank, end, answer)]

    def _answer(self, rank: int, what: str, words: dict[str, str]) -> str:
        if what in self._fixed:
            return self._fixed[what]
        if what not in self._handlers:
            raise PmiError(f"rank {rank} asked MPI's process manager for {what[:32]!r}, which it does not have")
        return self._handlers[what](rank, words)

    def _init(self, rank: int, words: dict[str, str]) -> str:
        code = 0 if words.get("pmi_version") == "1" else -1
        return f"cmd=response_to_init pmi_version=1 pmi_subversion=1 rc={code}"

    def _finalize(self, rank: int, words: dict[str, str]) -> str:
        self._streams[rank].over = True
        return "cmd=finalize_ack"

    def _abort(self, rank: int, words: dict[str, str]) -> str:
        code = words.get("exitcode", "")[:10]
        raise PmiAborted(f"MPI_Abort with exit code {code}" if code else "MPI_Abort")

    def _put(self, rank: int, words: dict[str, str]) -> str:
        key, value = words.get("key", ""), words.get("value", "")
        if not key or len(key) > KEY_MOST or len(value) > VALUE_MOST:
            return "cmd=put_result rc=-1 msg=invalid_length"
        if key in self._words:
            return f"cmd=put_result rc=-1 msg=duplicate_key_{key}"
        if len(self._words) > WORDS_EACH * self._size:
            raise PmiError(f"rank {rank} put too many words: there may be {WORDS_EACH} of each rank")
        self._words[key] = value
        return "cmd=put_result rc=0 msg=success"

    def _get(self, rank: int, words: dict[str, str]) -> str:
        value = self._words.get(words.get("key", ""))
        if value is None or words.get("kvsname") != self._name:
            return "cmd=get_result rc=-1 msg=key_not_found value=unknown"
        return f"cmd=get_result rc=0 msg=success value={value}"

    def _barrier(self, rank: int, end: int, line: bytes) -> list[Reply]:
        if rank in self._waiting:
            raise PmiError(f"rank {rank} came to a barrier of MPI's process manager twice")
        self._note(rank, end, line)
        self._waiting[rank] = end
        if len(self._waiting) < self._size:
            return []
        waited, self._waiting = self._waiting, {}
        return [self._tell(each, at, "cmd=barrier_out") for each, at in waited.items()]

    def _note(self, rank: int, end: int, line: bytes) -> None:
        """Keep a line that has changed something."""
        stream = self._streams[rank]
        stream.kept += 1
        if stream.kept > LINES_EACH:
            raise PmiError(f"rank {rank} said more than {LINES_EACH:,} lines to MPI's process manager")
        size = self.size + len(line) + LINE_BYTES
        if size > KEPT_BYTES:
            raise PmiError(f"the ranks said more than {KEPT_BYTES // 2**20} MiB to MPI's process manager")
        self._keep(rank, end, line)
        self.size = size

    def _tell(self, rank: int, end: int, answer: str) -> Reply:
        stream = self._streams[rank]
        stream.answer, stream.answered = f"{answer}\n".encode(), end
        return Reply(rank, end, stream.answer)


def _forget(rank: int, end: int, line: bytes) -> None:
    """Keep nothing: it is kept already."""


def process_mapping(hosts: Sequence[str]) -> str:
    """Which ranks share a PC, as MPICH reads it: blocks of (first PC, how many PCs, ranks on each), in rank order."""
    numbers = {host: number for number, host in enumerate(dict.fromkeys(hosts))}
    runs = [(number, len(list(its))) for number, its in groupby(numbers[host] for host in hosts)]
    blocks: list[list[int]] = []
    for number, ranks in runs:
        if blocks and blocks[-1][2] == ranks and number == blocks[-1][0] + blocks[-1][1]:
            blocks[-1][1] += 1
        else:
            blocks.append([number, 1, ranks])
    told = ",".join([f"({first},{count},{ranks})" for first, count, ranks in blocks])
    return f"(vector,{told})"
