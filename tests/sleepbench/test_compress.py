"""The demo's work: which files, how they are grouped and predicted, and who wins."""

import bz2
import lzma
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from deskgrid.sleepbench import compress as sq
from deskgrid.sleepbench.compress import CompressionCost, CompressionTask, FileToCompress, Squeezed

UNPACK: dict[str, Callable[[bytes], bytes]] = {"zlib": zlib.decompress, "bz2": bz2.decompress, "lzma": lzma.decompress}
if sys.version_info >= (3, 14):
    from compression import zstd

    UNPACK["zstd"] = zstd.decompress


def put(root: Path, name: str, size: int = 100) -> None:
    """A file of ``size`` bytes."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)


def test_every_file_of_a_known_kind_is_found_once_in_order(tmp_path: Path) -> None:
    for name in ("b.py", "a/a.py", "a/__pycache__/a.cpython-311.pyc", "lib/_x.so", "notes.txt", "w.whl"):
        put(tmp_path, name)
    found = [(source.path, source.kind) for source in sq.sources(tmp_path)]
    assert found == [
        ("a/__pycache__/a.cpython-311.pyc", "bytecode"),
        ("a/a.py", "source"),
        ("b.py", "source"),
        ("lib/_x.so", "extension"),
        ("notes.txt", "text"),
        ("w.whl", "archive"),
    ]


@pytest.mark.parametrize(
    "name", ["site-packages/x.py", "dist-packages/x.py", "__pycache__/x.cpython-311.opt-2.pyc", "libpython3.11.a"]
)
def test_what_does_not_belong_to_the_library_is_left_out(tmp_path: Path, name: str) -> None:
    put(tmp_path, name)
    assert sq.sources(tmp_path) == []


def test_an_empty_file_is_left_out(tmp_path: Path) -> None:
    put(tmp_path, "__init__.py", size=0)
    assert sq.sources(tmp_path) == []


def test_a_link_to_a_file_counts_as_the_file_also_outside(tmp_path: Path) -> None:
    put(tmp_path, "etc/sitecustomize.py", size=7)
    put(tmp_path, "lib/os.py")
    (tmp_path / "lib" / "site.py").symlink_to(tmp_path / "etc" / "sitecustomize.py")
    found = [(source.path, source.size) for source in sq.sources(tmp_path / "lib")]
    assert found == [("os.py", 100), ("site.py", 7)]


@pytest.mark.parametrize("target", ["nothing.py", "lost.py", "."], ids=["nothing", "itself", "a folder"])
def test_a_link_that_leads_to_no_file_is_left_out(tmp_path: Path, target: str) -> None:
    (tmp_path / "lost.py").symlink_to(target)
    assert sq.sources(tmp_path) == []


def test_a_file_that_may_not_be_read_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "os.py")
    put(tmp_path, "secret.py")
    # Root may read any file, so that taking the permission away would not be noticed.
    monkeypatch.setattr("os.access", lambda path, mode: path.name != "secret.py")
    assert [source.path for source in sq.sources(tmp_path)] == ["os.py"]


def test_the_installed_library_has_its_own_modules_in_it() -> None:
    found = {source.path for source in sq.sources(sq.library())}
    assert {"os.py", "json/decoder.py"} <= found


@pytest.mark.parametrize("setting", sq.SETTINGS)
def test_each_setting_makes_smaller_what_can_be_unpacked_again(setting: str) -> None:
    data = b"the same again and again, " * 1000
    packed = sq.SETTINGS[setting](data)
    assert len(packed) < len(data)
    assert UNPACK[setting.split()[0]](packed) == data


def test_the_task_adds_up_what_it_compressed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "a.py", 1000)
    put(tmp_path, "b/c.py", 500)
    monkeypatch.setattr(sq, "library", lambda: tmp_path)
    result = sq.squeeze(CompressionTask("zlib 6", "source", ("a.py", "b/c.py"), 0.1))
    packed = len(zlib.compress(b"x" * 1000, 6)) + len(zlib.compress(b"x" * 500, 6))
    assert (result.setting, result.kind) == ("zlib 6", "source")
    assert (result.files, result.before, result.after) == (2, 1500, packed)
    assert result.seconds >= 0.0


def test_every_setting_is_measured_on_every_kind_there_is(tmp_path: Path) -> None:
    put(tmp_path, "a.py", 5000)
    put(tmp_path, "a.txt", 5000)
    costs = sq.measure(tmp_path, sq.sources(tmp_path))
    assert set(costs) == {(setting, kind) for setting in sq.SETTINGS for kind in ("source", "text")}
    assert all(cost.per_file > 0.0 and cost.per_byte >= 0.0 for cost in costs.values())


def test_a_sample_has_files_of_all_sizes_and_stays_small() -> None:
    files = [FileToCompress(f"{place}.py", "source", 100 * place) for place in range(1, 241)]
    sizes = [source.size for source in sq.sample(files)]
    assert sum(sizes) <= sq.SAMPLE_BYTES
    assert min(sizes) < 3_000
    assert max(sizes) > 20_000


def test_a_single_large_file_is_a_sample_too() -> None:
    assert len(sq.sample([FileToCompress("a.py", "source", 10 * sq.SAMPLE_BYTES)])) == 1


# A second for each file and one for each ten bytes, whatever the setting; three files of ten bytes.
COSTS = {(setting, "source"): CompressionCost(1.0, 0.1) for setting in sq.SETTINGS}
FILES = [FileToCompress(f"{name}.py", "source", 10) for name in "abc"]


def test_groups_are_as_long_as_asked_and_hold_every_file_under_every_setting() -> None:
    made = sq.groups(FILES, ["zlib 1", "bz2 9"], COSTS, target=4.0)
    assert [(group.setting, group.paths, group.seconds) for group in made] == [
        ("zlib 1", ("a.py", "b.py"), 4.0),
        ("zlib 1", ("c.py",), 2.0),
        ("bz2 9", ("a.py", "b.py"), 4.0),
        ("bz2 9", ("c.py",), 2.0),
    ]


def test_a_file_that_takes_longer_than_a_task_should_is_a_task_of_its_own() -> None:
    made = sq.groups(FILES, ["zlib 1"], COSTS, target=0.5)
    assert [group.paths for group in made] == [("a.py",), ("b.py",), ("c.py",)]


def test_kinds_are_not_mixed_in_a_task() -> None:
    costs = COSTS | {(setting, "text"): CompressionCost(1.0, 0.1) for setting in sq.SETTINGS}
    made = sq.groups([*FILES, FileToCompress("d.txt", "text", 10)], ["zlib 1"], costs, target=100.0)
    assert [(group.kind, group.paths) for group in made] == [("source", ("a.py", "b.py", "c.py")), ("text", ("d.txt",))]


@pytest.mark.parametrize(("budget", "count"), [(1e9, len(sq.SETTINGS)), (18.0, 3), (17.9, 2), (0.0, 2)])
def test_settings_are_kept_while_time_lasts_but_two_at_least(budget: float, count: int) -> None:
    assert sq.affordable(FILES, COSTS, budget) == list(sq.SETTINGS)[:count]


def test_the_smallest_result_wins_its_kind_and_a_tie_goes_to_the_quicker() -> None:
    table = sq.standings(
        [
            Squeezed("zlib 1", "text", 1, 100, 50, 1.0),
            Squeezed("zlib 1", "text", 2, 100, 60, 1.0),
            Squeezed("lzma 6e", "text", 3, 200, 50, 9.0),
            Squeezed("lzma 6", "text", 3, 200, 50, 8.0),
            Squeezed("bz2 9", "source", 1, 100, 10, 1.0),
        ]
    )
    assert list(table) == ["source", "text"]
    assert [row.setting for row in table["text"]] == ["lzma 6", "lzma 6e", "zlib 1"]
    last = table["text"][2]
    assert (last.files, last.before, last.after) == (3, 200, 110)
    assert last.ratio == pytest.approx(200 / 110)
    assert last.speed == pytest.approx(200 / 1e6 / 2.0)
