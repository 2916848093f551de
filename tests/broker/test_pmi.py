"""PMI-1 as MPICH speaks it, line by line, and everything else that somebody may say instead."""

from collections.abc import Sequence
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deskgrid.broker.gangs import pmi
from deskgrid.broker.gangs.pmi import (
    LINE_BYTES,
    LINE_MOST,
    LINES_EACH,
    WORDS_EACH,
    PmiAborted,
    PmiError,
    PmiServer,
    process_mapping,
)


class Talk:
    """Ranks that say whole lines; ``kept``: what the server gave to be kept."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self.hosts = hosts
        self.kept: list[tuple[int, int, bytes]] = []
        self.server = PmiServer("kvs_7", hosts, lambda *line: self.kept.append(line))
        self.said = [0] * len(hosts)

    def say(self, rank: int, line: str) -> list[tuple[int, str]]:
        data = f"{line}\n".encode()
        replies = self.server.receive(rank, self.said[rank], data)
        self.said[rank] += len(data)
        return [(reply.rank, reply.data.decode()) for reply in replies]

    def restarted(self) -> None:
        """Another server, with what was kept."""
        self.server = PmiServer("kvs_7", self.hosts, lambda *line: self.kept.append(line))
        for line in [*self.kept]:
            self.server.replay(*line)


def test_two_ranks_begin_exchange_their_addresses_and_end() -> None:
    talk = Talk(["a", "b"])
    asked = {
        "cmd=init pmi_version=1 pmi_subversion=1": "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n",
        "cmd=get_maxes": "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n",
        "cmd=get_appnum": "cmd=appnum appnum=0\n",
        "cmd=get_my_kvsname": "cmd=my_kvsname kvsname=kvs_7\n",
        "cmd=get_universe_size": "cmd=universe_size size=2\n",
        "cmd=get kvsname=kvs_7 key=PMI_process_mapping": "cmd=get_result rc=0 msg=success value=(vector,(0,2,1))\n",
        "cmd=lookup_name service=x": "cmd=lookup_result rc=-1 info=not_here\n",
    }
    for line, answer in asked.items():
        assert talk.say(0, line) == [(0, answer)]
    for rank in range(2):
        assert talk.say(rank, f"cmd=put kvsname=kvs_7 key=P{rank} value=port#{rank}$x=y")[0][1].endswith("success\n")
    assert talk.say(1, "cmd=barrier_in") == []
    assert talk.say(0, "cmd=barrier_in") == [(1, "cmd=barrier_out\n"), (0, "cmd=barrier_out\n")]
    assert talk.say(0, "cmd=get kvsname=kvs_7 key=P1") == [(0, "cmd=get_result rc=0 msg=success value=port#1$x=y\n")]
    for rank in range(2):
        assert talk.say(rank, "cmd=finalize") == [(rank, "cmd=finalize_ack\n")]


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("cmd=init pmi_version=2", "rc=-1"),
        ("cmd=get kvsname=kvs_7 key=nothing", "rc=-1"),
        ("cmd=get kvsname=other key=PMI_process_mapping", "rc=-1"),
        ("cmd=put kvsname=kvs_7 key=PMI_process_mapping value=1", "rc=-1"),
        (f"cmd=put kvsname=kvs_7 key={'k' * 65} value=1", "rc=-1"),
        (f"cmd=put kvsname=kvs_7 key=k value={'v' * 1025}", "rc=-1"),
        ("cmd=put kvsname=kvs_7 value=1", "rc=-1"),
    ],
)
def test_what_cannot_be_done_is_answered(line: str, answer: str) -> None:
    ((_, said),) = Talk(["a"]).say(0, line)
    assert answer in said


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["cmd=barrier_in", "cmd=barrier_in"], "rank 0 came to a barrier of MPI's process manager twice"),
        (["mcmd=spawn"], "rank 0 asked MPI's process manager for '', which it does not have"),
        (["cmd=spawn nprocs=3"], "for 'spawn', which it does not have"),
        (["cmd=finalize", "cmd=get_appnum"], "rank 0 went on speaking to MPI's process manager after its end"),
        (["caf\u00e9"], "rank 0 said to MPI's process manager what is not text"),
        (["x" * 4097], "rank 0 said a line of more than 4,096 bytes"),
    ],
)
def test_what_makes_no_sense_ends_the_gang(lines: list[str], reason: str) -> None:
    talk = Talk(["a", "b"])
    *before, last = lines
    for line in before:
        talk.say(0, line)
    data = last.encode() if len(last) > 4096 else f"{last}\n".encode()
    with pytest.raises(PmiError, match=reason):
        talk.server.receive(0, talk.said[0], data)


def test_an_abort_ends_the_gang_and_says_so() -> None:
    with pytest.raises(PmiAborted, match="MPI_Abort with exit code 3"):
        Talk(["a"]).say(0, "cmd=abort exitcode=3")
    with pytest.raises(PmiAborted, match=r"MPI_Abort$"):
        Talk(["a"]).say(0, "cmd=abort")


def test_words_are_bounded() -> None:
    talk = Talk(["a"])
    for number in range(WORDS_EACH):
        talk.say(0, f"cmd=put kvsname=kvs_7 key=k{number} value=v")
    with pytest.raises(PmiError, match="too many words"):
        talk.say(0, "cmd=put kvsname=kvs_7 key=last value=v")


@pytest.mark.parametrize("end", ["", "\n"])
def test_lines_are_bounded_and_long_ones_are_not_kept(end: str) -> None:
    kept: list[bytes] = []
    server = PmiServer("kvs", ["a"], lambda rank, ends, line: kept.append(line))
    with pytest.raises(PmiError, match="a line of more than"):
        server.receive(0, 0, f"cmd=put kvsname=kvs key=a value=b more={'x' * LINE_MOST}{end}".encode())
    assert kept == []


def test_barriers_are_bounded() -> None:
    talk = Talk(["a"])
    for _ in range(LINES_EACH):
        assert talk.say(0, "cmd=barrier_in") == [(0, "cmd=barrier_out\n")]
    with pytest.raises(PmiError, match="said more than 1,000 lines"):
        talk.say(0, "cmd=barrier_in")
    assert len(talk.kept) == LINES_EACH


def test_what_is_kept_of_a_gang_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    line = "cmd=put kvsname=kvs_7 key=k{} value=v"
    monkeypatch.setattr(pmi, "KEPT_BYTES", 2 * (len(line) - 1 + LINE_BYTES))
    talk = Talk(["a", "b"])
    talk.say(0, line.format(0))
    talk.say(0, "cmd=get_appnum")  # it changes nothing
    talk.say(1, line.format(1))
    with pytest.raises(PmiError, match="the ranks said more than"):
        talk.say(1, line.format(2))
    assert len(talk.kept) == 2
    assert talk.server.size == pmi.KEPT_BYTES


def test_lines_may_come_in_any_pieces() -> None:
    talk = Talk(["a"])
    data = b"cmd=get_appnum\ncmd=get_universe_size\n"
    found = [reply.data for at in range(len(data)) for reply in talk.server.receive(0, at, data[at : at + 1])]
    assert found == [b"cmd=appnum appnum=0\n", b"cmd=universe_size size=1\n"]


def test_what_is_said_again_is_answered_again_and_counts_once() -> None:
    talk = Talk(["a", "b"])
    line = b"cmd=barrier_in\n"
    assert talk.server.receive(0, 0, line) == []
    assert talk.server.receive(0, 0, line) == []  # it still waits
    (first, second) = talk.server.receive(1, 0, line)
    assert (first.rank, first.start, second.rank) == (0, len(line), 1)
    assert talk.server.receive(0, 0, line) == [first]
    (answer,) = talk.server.receive(0, 0, line + b"cmd=get_appnum\n")  # the last of it is new
    assert answer.start == len(line) + 15
    with pytest.raises(PmiError, match="left out some"):
        talk.server.receive(0, 1000, line)


def test_another_server_goes_on_where_the_first_was() -> None:
    talk = Talk(["a", "b"])
    talk.say(0, "cmd=init pmi_version=1 pmi_subversion=1")
    talk.say(0, "cmd=put kvsname=kvs_7 key=P0 value=port")
    talk.say(1, "cmd=barrier_in")
    talk.restarted()
    assert talk.server.receive(1, 0, b"cmd=barrier_in\n") == []  # said again: its answer has not come
    assert [rank for rank, _ in talk.say(0, "cmd=barrier_in")] == [1, 0]
    talk.say(1, "cmd=get kvsname=kvs_7 key=P0")
    talk.restarted()  # which has not heard of what was only asked
    assert talk.say(1, "cmd=get kvsname=kvs_7 key=P0")[0][1].endswith("value=port\n")
    assert talk.say(0, "cmd=finalize") == [(0, "cmd=finalize_ack\n")]
    talk.restarted()
    with pytest.raises(PmiError, match="after its end"):
        talk.say(0, "cmd=get_appnum")


@pytest.mark.parametrize(
    ("hosts", "mapping"),
    [
        ("abcd", "(vector,(0,4,1))"),
        ("aabb", "(vector,(0,2,2))"),
        ("aab", "(vector,(0,1,2),(1,1,1))"),
        ("abab", "(vector,(0,2,1),(0,2,1))"),
        ("aaaa", "(vector,(0,1,4))"),
        ("abba", "(vector,(0,1,1),(1,1,2),(0,1,1))"),
    ],
)
def test_the_mapping_says_which_ranks_share_a_pc(hosts: str, mapping: str) -> None:
    assert process_mapping(hosts) == mapping


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=12))
def test_any_mapping_says_where_each_rank_is(hosts: list[str]) -> None:
    numbers = {host: number for number, host in enumerate(dict.fromkeys(hosts))}
    found: list[int] = []
    blocks = process_mapping(hosts).removeprefix("(vector,(").removesuffix("))").split("),(")
    for first, count, ranks in (map(int, block.split(",")) for block in blocks):
        found += [number for number in range(first, first + count) for _ in range(ranks)]
    assert found == [numbers[host] for host in hosts]


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 50), st.binary(max_size=60)), max_size=20))
def test_garbage_is_answered_or_ends_the_gang(said: list[tuple[int, int, bytes]]) -> None:
    server = PmiServer("kvs_7", ["a", "b"], lambda *line: None)
    with suppress(PmiError):
        for rank, start, data in said:
            for reply in server.receive(rank, start, data):
                assert reply.data.endswith(b"\n")
