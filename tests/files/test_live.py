"""Files on a real grid: commands and functions, what they are given and what they leave."""

import os
import pickle
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from deskgrid import File, wire
from deskgrid.client import carried
from deskgrid.client.grid import Grid
from deskgrid.client.link import Link
from deskgrid.client.template import Template, python_template
from deskgrid.errors import BagRejected, RemoteError, RequestFailed
from deskgrid.homes import this_host
from tests.files.fakes import content
from tests.live import LiveGrid, live_grid
from tests.waiting import PATIENCE_S, eventually

BIG = os.urandom(2 * wire.PART_BYTES + 100)
COPIES = """
import pathlib, sys
place = pathlib.Path(sys.argv[1])
place.mkdir()
for path in [*pathlib.Path().rglob("*")]:
    if path.is_file():
        (place / path.name.upper()).write_bytes(path.read_bytes())
print(len([*place.iterdir()]))
"""


def folders_in(place: Path) -> set[str]:
    return {path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_dir()}


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveGrid]:
    with live_grid(tmp_path / "home", workers=1, durability="process") as started:
        yield started


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the program."""
    place = tmp_path / "here"
    place.mkdir()
    monkeypatch.chdir(place)
    (place / "data.csv").write_bytes(b"1,2,3")
    (place / "model" / "in ner").mkdir(parents=True)
    (place / "model" / "in ner" / "ü.bin").write_bytes(BIG)
    (place / "model" / "empty").mkdir()
    return place


class Said:
    """The messages about files that programs send."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.parts: list[bytes] = []
        send = Link.send

        def noted(link: Link, message: Any, *args: Any, **options: Any) -> None:
            if isinstance(message, wire.Part):
                self.parts.append(message.digest)
            send(link, message, *args, **options)

        monkeypatch.setattr(Link, "send", noted)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Said:
    return Said(monkeypatch)


def test_a_command_finds_its_files_in_a_fresh_folder_and_leaves_others(
    grid: Grid, here: Path, said: Said, tmp_path: Path
) -> None:
    (here / "copies.py").write_text(COPIES)
    inputs: list[str | Path] = [Path("copies.py"), "model/", "params/p.csv=data.csv"]
    argv = [sys.executable, "copies.py", "out{}"]
    bag = grid.command(argv, ["0", "1"], runtime=1, inputs=inputs, outputs=["out*/*"])
    assert [text.strip() for text in bag.results()] == ["3", "3"]
    expected = {"COPIES.PY": COPIES.encode(), "Ü.BIN": BIG, "P.CSV": b"1,2,3"}
    to = tmp_path / "to"
    assert len(bag.fetch(to)) == 6
    assert content(to) == {f"{task}/out{task}/{name}": data for task in (0, 1) for name, data in expected.items()}
    assert len(bag.fetch(tmp_path / "one", 1)) == 3
    assert content(tmp_path / "one") == {f"out1/{name}": data for name, data in expected.items()}
    assert len(said.parts) == len(set(said.parts)) == 6
    grid.command(argv, ["2"], runtime=1, inputs=inputs, outputs=["out*/*"]).wait(PATIENCE_S)
    assert len(said.parts) == 6, "a repeated input sends nothing"


def test_a_fetch_goes_on_where_it_stopped_and_never_replaces_a_file(grid: Grid, here: Path, tmp_path: Path) -> None:
    bag = grid.command(["true"], [""], runtime=1, inputs=["model"], outputs=["model"])
    to = tmp_path / "to"
    part = to / "model" / "in ner" / "ü.bin.deskgrid-part"
    part.parent.mkdir(parents=True)
    part.write_bytes(BIG[: wire.PART_BYTES] + b"cut")
    asked: list[wire.Message] = []
    send = grid._link.send
    grid._link.send = lambda message, *args, **more: (asked.append(message), send(message, *args, **more))[1]  # type: ignore[method-assign,func-returns-value]
    (path,) = bag.fetch(to, 0)
    assert path.read_bytes() == BIG
    assert sum(isinstance(message, wire.Want) for message in asked) == 1 + 2, (
        "the list of files, and two parts of three"
    )
    assert bag.fetch(to, 0) == [path]
    path.write_bytes(b"mine")
    with pytest.raises(RequestFailed, match="is there already, and is another file"):
        bag.fetch(to, 0)
    assert path.read_bytes() == b"mine"
    with pytest.raises(RequestFailed, match="no item 1"):
        bag.fetch(to, 1)


def test_a_pattern_without_a_match_is_an_error_that_lists_the_folder(grid: Grid, tmp_path: Path) -> None:
    bag = grid.command(["true"], [""], runtime=1, inputs=["data.csv"], outputs=["out/*.npz"])
    (error,) = bag.results(errors="return")
    assert "OutputsRefused: no file matches 'out/*.npz'; the folder has: data.csv" in str(error)
    assert bag.fetch(tmp_path) == []
    with pytest.raises(RemoteError, match="no file matches"):
        bag.fetch(tmp_path, 0)


@pytest.mark.parametrize(
    ("inputs", "why"),
    [
        (["nothing.csv"], "nothing.csv cannot be read: No such file"),
        ([""], "an input is PATH or NAME=PATH, not ''"),
        (["data="], "an input is PATH or NAME=PATH, not 'data='"),
        (["../a=data.csv"], "cannot be the name of a file in a task's folder: it is not a path below"),
        (["nul=data.csv"], "Windows cannot have it"),
        (["A=data.csv", "a=data.csv"], "the same name where case does not count"),
        (["data.csv", "data.csv"], "two of the files are named"),
        (["linked"], "is a link that leads out of its folder"),
        (["dangling"], "which is not a file"),
        (["/dev/null"], "neither a file nor a folder"),
        ("data.csv", r'inputs is a list, such as \["data.csv"\], not'),
        ([b"data.csv"], "an input is PATH or NAME=PATH, not b'data.csv'"),
    ],
)
def test_inputs_that_cannot_travel_are_refused_with_the_reason(grid: Grid, here: Path, inputs: Any, why: str) -> None:
    for folder, target in (("linked", "../data.csv"), ("dangling", "none")):
        (here / folder).mkdir()
        (here / folder / "link").symlink_to(target)
    with pytest.raises(BagRejected, match=why):
        grid.command(["true"], [""], inputs=inputs)


@pytest.mark.parametrize("outputs", [["../*"], ["/etc/*"], "out/*", ["*"] * 101, [Path("out")], b"out"])
def test_patterns_that_lead_out_of_the_folder_are_refused(grid: Grid, outputs: Any) -> None:
    with pytest.raises(BagRejected):
        grid.command(["true"], [""], outputs=outputs)


@pytest.mark.parametrize("now", [b"other", b""])
def test_an_input_that_changes_while_it_is_sent_refuses_the_bag(
    grid: Grid, here: Path, monkeypatch: pytest.MonkeyPatch, now: bytes
) -> None:
    send = Link.send

    def changing(link: Link, message: Any, *args: Any, **more: Any) -> None:
        if isinstance(message, wire.Offer):
            (here / "data.csv").write_bytes(now)
        send(link, message, *args, **more)

    monkeypatch.setattr(Link, "send", changing)
    with pytest.raises(BagRejected, match=r"data\.csv: .*the file changed while it was sent"):
        grid.command(["true"], [""], inputs=["data.csv"])
    assert grid.bags() == []


def test_a_file_that_changes_while_it_is_sent_refuses_only_its_call(
    grid: Grid, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = Link.send

    def changing(link: Link, message: Any, *args: Any, **more: Any) -> None:
        if isinstance(message, wire.Offer):
            (here / "log.txt").write_text("other")
        send(link, message, *args, **more)

    def read(file: File) -> str:
        return str(file.open().read())

    (here / "log.txt").write_text("first")
    (here / "quiet.txt").write_text("quiet")
    monkeypatch.setattr(Link, "send", changing)
    with pytest.raises(BagRejected, match=r"log\.txt: .*the file changed while it was sent"):
        grid.submit(read, File("log.txt"))
    assert grid.submit(read, File("quiet.txt")).result(PATIENCE_S) == "quiet"


def test_a_pc_fetches_no_file_of_another_call(grid: Grid, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(file: File) -> str:
        return str(file.open().read())

    inputs = []

    def noting(*args: Any, **more: Any) -> Template:
        inputs.append(args[3])
        return python_template(*args, **more)

    (here / "one.txt").write_text("one")
    monkeypatch.setattr(carried, "python_template", noting)
    assert grid.submit(read, File("one.txt")).result(PATIENCE_S) == "one"
    assert inputs == [b""]


# --- functions -------------------------------------------------------------------------------------------------------


def test_a_function_is_given_files_and_returns_others(grid: Grid, here: Path) -> None:
    def double(given: dict[str, Any]) -> dict[str, Any]:
        out = File("deep/out.txt")
        with given["file"].open() as file, open(out, "w") as other:
            other.write(file.read() * 2)
        return {"out": out, "model": sorted(os.listdir(os.path.join(given["model"], "in ner")))}

    items = [
        {"file": File("data.csv"), "model": File(here / "model")},
        {"file": File("data.csv"), "model": File("model")},
    ]
    for result in grid.bag(double, items, runtime=1).results():
        with result["out"].open() as file:
            assert file.read() == "1,2,31,2,3"
        assert result["out"].name == "out.txt"
        assert result["model"] == ["ü.bin"]
    future = grid.submit(double, items[0])
    assert Path(future.result(PATIENCE_S)["out"]).read_text() == "1,2,31,2,3"


def test_a_function_may_return_a_folder_and_files_from_anywhere(grid: Grid, tmp_path: Path) -> None:
    elsewhere = str(tmp_path / "elsewhere.txt")

    def make(_: int) -> tuple[Any, Any]:
        folder = File("many")
        os.mkdir(folder)
        for name in ("a", "b"):
            with open(os.path.join(folder, name), "w") as file:
                file.write(name)
        with open(elsewhere, "w") as file:
            file.write("there")
        return folder, File(elsewhere)

    ((folder, file),) = grid.bag(make, [1], runtime=1).results()
    assert content(Path(folder)) == {"a": b"a", "b": b"b"}
    assert Path(file).read_text() == "there"


def test_empty_folders_travel_there_and_back(grid: Grid, tmp_path: Path) -> None:
    (tmp_path / "given" / "in" / "ner").mkdir(parents=True)
    (tmp_path / "given" / "none").mkdir()
    (tmp_path / "nothing").mkdir()

    def copied(given: list[File]) -> list[File]:
        left = [File("left"), File("deep/nothing")]
        for source, target in zip(given, left, strict=True):
            __import__("shutil").copytree(source, target)
        return left

    (found,) = grid.bag(copied, [[File(tmp_path / "given"), File(tmp_path / "nothing")]], runtime=1).results()
    assert [folders_in(Path(each)) for each in found] == [{"in", "in/ner", "none"}, set()]
    bag = grid.command(
        ["cp", "-r", "given", "left"], [""], runtime=1, inputs=[str(tmp_path / "given")], outputs=["left"]
    )
    assert bag.fetch(tmp_path / "to", 0) == []
    assert folders_in(tmp_path / "to") == {"left", "left/in", "left/in/ner", "left/none"}


def test_a_function_may_return_links_of_any_form_into_its_folder(grid: Grid, tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("theirs")

    def links(how: str) -> list[File]:
        real, folder = File("deep/real"), File("many")
        os.mkdir(folder)
        for path in (real.path, os.path.join(folder, "real")):
            with open(path, "w") as file:
                file.write("data")
        ways = {"absolute": os.path.abspath, "relative": lambda path: os.path.relpath(path, folder)}
        way = ways[how]
        os.symlink(way(os.path.join(folder, "real")), os.path.join(folder, "inside"))
        os.symlink(way(real.path), os.path.join(folder, "beside"))
        os.symlink(os.path.abspath(real.path), File("alone"))
        return [folder, File("alone")]

    for folder, alone in grid.bag(links, ["absolute", "relative"], runtime=1).results():
        assert content(Path(folder)) == dict.fromkeys(("real", "inside", "beside"), b"data")
        assert Path(alone).read_bytes() == b"data"
        assert not any(Path(path).is_symlink() for path in (alone, *Path(folder).iterdir()))

    def leads_out(path: str) -> File:
        os.symlink(path, File("out"))
        return File("out")

    (error,) = grid.bag(leads_out, [str(tmp_path / "theirs")], runtime=1).results(errors="return")
    assert "'out' is a link to something that is not in the task's folder" in str(error)


def test_what_a_function_wrote_to_a_file_that_is_still_open_is_in_its_result(grid: Grid) -> None:
    def writes(text: str) -> list[File]:
        one, folder = File("one.txt"), File("many")
        os.mkdir(folder)
        sys.kept = [one.open("w"), File(os.path.join(folder, "other.bin")).open("wb")]  # type: ignore[attr-defined]
        for file, data in zip(sys.kept, (text, text.encode()), strict=True):  # type: ignore[attr-defined]
            file.write(data)
        return [one, folder]

    for (one, folder), text in zip(grid.bag(writes, ["a", "b"], runtime=1).results(), "ab", strict=True):
        assert (Path(one).read_text(), content(Path(folder))) == (text, {"other.bin": text.encode()})


def test_files_that_a_function_did_not_write_or_named_twice_are_its_error(grid: Grid, tmp_path: Path) -> None:
    def forgets(_: int) -> Any:
        return File("out.npz")

    def twice(folder: str) -> Any:
        for name in ("a", "b"):
            os.mkdir(os.path.join(folder, name))
            with open(os.path.join(folder, name, "x"), "w") as file:
                file.write(name)
        return [File(os.path.join(folder, name, "x")) for name in ("a", "b")]

    (error,) = grid.bag(forgets, [1], runtime=1).results(errors="return")
    assert "the task did not write the file 'out.npz', which its result names: write through the File" in str(error)
    (error,) = grid.bag(twice, [str(tmp_path)], runtime=1).results(errors="return")
    assert "two of the files in the result are named 'x'" in str(error)


def test_values_above_the_limit_of_a_message_travel_as_files(grid: Grid) -> None:
    large = bytes(wire.PAYLOAD_LIMIT) + b"end"
    bag = grid.bag(lambda data: data + b"!", [large, b"small"], runtime=1)
    first, second = bag.results()
    assert first == large + b"!"
    assert second == b"small!"
    assert grid.submit(len, large).result(PATIENCE_S) == len(large)


class Array:
    """An object that pickles as arrays do: its bytes out of band."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __reduce_ex__(self, protocol: Any) -> Any:
        return Array, (pickle.PickleBuffer(self.data),)


def test_a_shared_object_travels_once_and_is_mapped_by_each_process(live: LiveGrid) -> None:
    live.worker("pc2")
    live.worker("pc3", slots=2)
    size = 5 * wire.PART_BYTES
    with Grid(live.broker.ready.client_line) as grid:
        shared: Any = grid.share({"array": Array(bytearray(os.urandom(size))), "name": "x"})
        assert shared.value["name"] == "x"

        def look(place: int) -> tuple[int, bool, int, int]:
            data = shared["array"].data
            with open("/proc/self/maps") as file:
                maps = [line for line in file if any(f"/{name}/" in line for name in ("needs", "cache", "gone"))]
            return data[place], data.readonly, len(maps), os.getpid()

        if sys.platform != "linux":
            pytest.skip("needs /proc")
        found = grid.bag(look, range(100), runtime=0.01).results()
        assert [byte for byte, *_ in found] == list(shared.value["array"].data[:100])
        assert all(readonly for _, readonly, *_ in found)
        assert {count for _, _, count, _ in found} == {1}
        assert len({pid for *_, pid in found}) > 1
        with pytest.raises(TypeError, match="travels only in the items and functions of a bag"):
            pickle.dumps(shared)
    cached = [
        path
        for path in Path(f"{live.home}-pcs", "files", this_host(), "cache").iterdir()
        if path.stat().st_size >= size
    ]
    assert len(cached) == 1, "one copy on the disk, for all workers of the PC"


class Holder:
    """An object that has a shared one, and whose method is the task."""

    def __init__(self, shared: Any) -> None:
        self.shared = shared

    def grow(self, item: int) -> list[int]:
        """Change it."""
        self.shared.append(item)
        return list(self.shared)


def test_each_attempt_finds_shared_objects_as_they_were_wherever_it_holds_them(grid: Grid) -> None:
    shared: Any = grid.share([1, 2])

    def default(item: int, found: Any = shared) -> list[int]:
        found.append(item)
        return list(found)

    def closure(item: int) -> list[int]:
        return default(item, shared)

    def in_item(item: tuple[int, list[Any]]) -> list[int]:
        return default(item[0], item[1][0])

    for task in (default, closure, Holder(shared).grow, partial(default, found=shared)):
        assert grid.bag(task, range(3), runtime=0.01).results() == [[1, 2, item] for item in range(3)]
    assert grid.bag(in_item, [(9, [shared])] * 3, runtime=0.01).results() == [[1, 2, 9]] * 3


def test_within_an_attempt_a_shared_object_is_one_object_also_when_it_was_changed(grid: Grid) -> None:
    shared: Any = grid.share({"key": 1})

    def task(other: Any) -> bool:
        shared["key"] = 2
        return shared is other and other["key"] == 2

    assert grid.bag(task, [shared] * 3, runtime=0.01).results() == [True] * 3


def test_what_a_program_keeps_stays_while_its_tasks_only_read_what_is_shared(grid: Grid) -> None:
    shared: Any = grid.share({"key": [1, 2]})
    kept: list[int] = []

    def task(item: int) -> list[int]:
        kept.append(item + len(shared["key"]))
        return list(kept)

    assert grid.bag(task, [0, 1, 2], runtime=0.01).results() == [[2], [2, 3], [2, 3, 4]]


def test_an_array_that_takes_another_s_place_in_a_shared_object_is_gone_afterwards(grid: Grid) -> None:
    shared: Any = grid.share({"a": Array(bytearray(b"aaaa")), "b": Array(bytearray(b"bbbb"))})

    def task(swap: bool) -> bytes:
        found = bytes(shared["a"].data)
        if swap:
            shared["a"], shared["b"] = shared["b"], shared["a"]
        else:
            shared["a"].data = bytearray(b"cccc")
        return found

    assert grid.bag(task, [True, False, False], runtime=0.01).results() == [b"aaaa"] * 3


def test_the_error_of_a_task_that_changes_a_shared_array_says_what_to_do(grid: Grid) -> None:
    shared: Any = grid.share(Array(bytearray(10)))

    def task(item: int) -> None:
        shared.data[0] = item

    (error,) = grid.bag(task, [1], runtime=0.01).results(errors="return")
    assert any("change a copy, such as array.copy()" in note for note in getattr(error, "__notes__", ()))


# --- what is cut -----------------------------------------------------------------------------------------------------


def test_the_folders_of_tasks_and_results_are_gone_afterwards(live: LiveGrid, grid: Grid) -> None:
    grid.command(["touch", "out"], [""], runtime=1, inputs=["data.csv"], outputs=["out"]).wait(PATIENCE_S)
    area = Path(f"{live.home}-pcs", "files", this_host())
    assert eventually(lambda: not list(area.glob("deskgrid-worker-*/*/*")), PATIENCE_S)
    live.workers[0].stop()
    assert sorted(path.name for path in area.iterdir()) == ["cache", "wheels"]


def test_more_source_than_a_template_holds_travels_as_files(
    grid: Grid, here: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "heavy").mkdir()
    (here / "heavy" / "__init__.py").write_text("")
    (here / "heavy" / "table.py").write_text(f"TEXT = {'x' * 2**20!r}\n")
    late = "def size(item):\n    from heavy import table\n    return item + len(table.TEXT)\n"
    (here / "heavy" / "late.py").write_text(late)
    monkeypatch.syspath_prepend(str(here))
    monkeypatch.setattr("deskgrid.client.carried.BUNDLE_BYTES", 1_000)
    from heavy.late import size  # type: ignore[import-not-found]

    try:
        assert grid.bag(size, [1, 2, 3]).results() == [2**20 + item for item in (1, 2, 3)]
        assert len(said.parts) == 3  # two files with something in them, and their list
        assert grid.bag(size, [4]).results() == [2**20 + 4]
        assert len(said.parts) == 3
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "heavy"]:
            del sys.modules[name]
