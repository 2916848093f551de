"""The demo's work: compress the files of the standard library. Tasks load this file, so it imports nothing of ours.

Rule 1: files are named relative to the library's folder, which every worker of the same Python has.
Rule 2: each file is compressed by itself, as it would be stored. Speeds are per CPU second, so a busy PC does not
distort them.
Rule 3: predictions come from measurements: the cost of a setting per file and per byte, by kind of file.
"""

import bz2
import lzma
import os
import sys
import sysconfig
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

# Kinds of files, with the suffixes of their names. Other files (static libraries, icons) are ignored.
KINDS: Mapping[str, tuple[str, ...]] = {
    "source": (".py",),
    "bytecode": (".pyc",),
    "extension": (".so", ".pyd", ".dll", ".dylib"),
    "text": (".txt", ".decTest", ".html", ".xml", ".pem", ".rst", ".toml", ".cfg", ".csv"),
    "archive": (".whl", ".zip", ".gz", ".tar", ".tgz", ".bz2", ".xz"),
}


def _zstd() -> dict[str, Callable[[bytes], bytes]]:
    """Settings of Zstandard, which Python has since 3.14, unless it was built without."""
    if sys.version_info >= (3, 14):
        with suppress(ImportError):
            from compression import zstd

            return {"zstd 3": lambda data: zstd.compress(data, 3), "zstd 12": lambda data: zstd.compress(data, 12)}
    return {}


# Roughly from fast to thorough: when time is short, the last ones are left out. lzma from 7 on is for larger files.
SETTINGS: Mapping[str, Callable[[bytes], bytes]] = {
    **_zstd(),
    "zlib 1": lambda data: zlib.compress(data, 1),
    "zlib 6": lambda data: zlib.compress(data, 6),
    "bz2 1": lambda data: bz2.compress(data, 1),
    "bz2 9": lambda data: bz2.compress(data, 9),
    "lzma 0": lambda data: lzma.compress(data, preset=0),
    "lzma 3": lambda data: lzma.compress(data, preset=3),
    "zlib 9": lambda data: zlib.compress(data, 9),
    "lzma 6": lambda data: lzma.compress(data, preset=6),
    "lzma 6e": lambda data: lzma.compress(data, preset=6 | lzma.PRESET_EXTREME),
}

# The size of the sample on which a setting is measured, per kind. It takes the slowest setting a few hundredths of a
# second, and is large enough for predictions that are rarely wrong by a factor of two.
SAMPLE_BYTES = 200_000
SAMPLE_FILES = 12
# How often each sample is measured. The fastest call counts, because something else delayed the others.
SAMPLE_CALLS = 2
# Calls on empty data, to measure the fixed cost per file. The fastest counts, because the first calls warm up.
EMPTY_CALLS = 5


@dataclass(frozen=True, slots=True)
class FileToCompress:
    """A file to compress. ``path``: relative to the standard library, with slashes."""

    path: str
    kind: str
    size: int


@dataclass(frozen=True, slots=True)
class CompressionCost:
    """Seconds that a setting takes per file and per byte."""

    per_file: float
    per_byte: float

    def of(self, files: int, size: int) -> float:
        """Predicted seconds for ``files`` files of ``size`` bytes in total."""
        return files * self.per_file + size * self.per_byte


@dataclass(frozen=True, slots=True)
class CompressionTask:
    """One task: some files of one kind, with one setting. ``seconds``: predicted, on an otherwise idle PC."""

    setting: str
    kind: str
    paths: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Squeezed:
    """How a setting did on files of one kind: those of a group, or of several. ``seconds``: CPU time for compressing.

    ``ratio``: before over after; ``speed``: megabytes per second of CPU.
    """

    setting: str
    kind: str
    files: int
    before: int
    after: int
    seconds: float

    @property
    def ratio(self) -> float:
        return self.before / self.after

    @property
    def speed(self) -> float:
        return self.before / 1e6 / max(self.seconds, 1e-9)


def library() -> Path:
    """Where the standard library is installed."""
    return Path(sysconfig.get_path("stdlib"))


def sources(root: Path) -> list[FileToCompress]:
    """Every file of a known kind below ``root``, sorted; without installed packages and optimised bytecode.

    A link to a file counts as that file, also where it leads out of ``root``. What nobody may read is left out.
    """
    kinds = {suffix: kind for kind, suffixes in KINDS.items() for suffix in suffixes}
    found = []
    for path in sorted(root.rglob("*")):
        place = path.relative_to(root)
        kind = kinds.get(path.suffix)
        skipped = {"site-packages", "dist-packages"} & set(place.parts) or ".opt-" in path.name
        if kind and not skipped and path.is_file() and path.stat().st_size and os.access(path, os.R_OK):
            found.append(FileToCompress(place.as_posix(), kind, path.stat().st_size))
    return found


def squeeze(group: CompressionTask) -> Squeezed:
    """The task: compress the files of ``group``, one by one."""
    root, pack = library(), SETTINGS[group.setting]
    before = after = 0
    seconds = 0.0
    for path in group.paths:
        data = (root / path).read_bytes()
        started = time.process_time()
        packed = pack(data)
        seconds += time.process_time() - started
        before += len(data)
        after += len(packed)
    return Squeezed(group.setting, group.kind, len(group.paths), before, after, seconds)


def measure(root: Path, files: Sequence[FileToCompress]) -> dict[tuple[str, str], CompressionCost]:
    """The cost of each (setting, kind) on this machine, measured on a few files of each kind."""
    samples = {kind: sample([file for file in files if file.kind == kind]) for kind in KINDS}
    costs: dict[tuple[str, str], CompressionCost] = {}
    for setting, pack in SETTINGS.items():
        per_file = min(_timed(pack, [b""]) for _ in range(EMPTY_CALLS))
        for kind, chosen in samples.items():
            data = [(root / file.path).read_bytes() for file in chosen]
            size = sum(map(len, data))
            if size:
                rest = max(0.0, min(_timed(pack, data) for _ in range(SAMPLE_CALLS)) - per_file * len(data))
                costs[setting, kind] = CompressionCost(per_file, rest / size)
    return costs


def sample(files: Sequence[FileToCompress]) -> list[FileToCompress]:
    """A few of ``files``, of all sizes, together not much more than `SAMPLE_BYTES`."""
    by_size = sorted(files, key=lambda file: (file.size, file.path))
    step = max(1, len(by_size) // SAMPLE_FILES)
    chosen: list[FileToCompress] = []
    for file in by_size[step // 2 :: step]:
        if chosen and sum(other.size for other in chosen) + file.size > SAMPLE_BYTES:
            break
        chosen.append(file)
    return chosen


def _timed(pack: Callable[[bytes], bytes], data: Iterable[bytes]) -> float:
    started = time.perf_counter()
    for item in data:
        pack(item)
    return time.perf_counter() - started


def affordable(
    files: Sequence[FileToCompress], costs: Mapping[tuple[str, str], CompressionCost], budget: float
) -> list[str]:
    """The first settings that together take no more than ``budget`` seconds on all files; at least two."""
    kept: list[str] = []
    left = budget
    for setting in SETTINGS:
        left -= sum(costs[setting, file.kind].of(1, file.size) for file in files)
        if left < 0.0 and len(kept) >= 2:
            break
        kept.append(setting)
    return kept


def groups(
    files: Sequence[FileToCompress],
    settings: Sequence[str],
    costs: Mapping[tuple[str, str], CompressionCost],
    target: float,
) -> list[CompressionTask]:
    """Tasks for every setting on every file. A task has up to ``target`` predicted seconds, or a single file."""
    made = []
    for setting in settings:
        for kind in KINDS:
            cost = costs.get((setting, kind))
            if cost is not None:
                made += _grouped(setting, kind, [file for file in files if file.kind == kind], cost, target)
    return made


def _grouped(
    setting: str, kind: str, files: Sequence[FileToCompress], cost: CompressionCost, target: float
) -> list[CompressionTask]:
    made, paths, seconds = [], list[str](), 0.0
    for file in files:
        more = cost.of(1, file.size)
        if paths and seconds + more > target:
            made.append(CompressionTask(setting, kind, tuple(paths), seconds))
            paths, seconds = [], 0.0
        paths.append(file.path)
        seconds += more
    if paths:
        made.append(CompressionTask(setting, kind, tuple(paths), seconds))
    return made


def standings(results: Iterable[Squeezed]) -> dict[str, list[Squeezed]]:
    """All settings by kind of file, the one with the smallest result first; a tie goes to the faster one."""
    sums: dict[tuple[str, str], list[float]] = {}
    for result in results:
        row = sums.setdefault((result.kind, result.setting), [0, 0, 0, 0.0])
        for place, more in enumerate((result.files, result.before, result.after, result.seconds)):
            row[place] += more
    table: dict[str, list[Squeezed]] = {}
    for (kind, setting), (files, before, after, seconds) in sums.items():
        whole = Squeezed(setting, kind, int(files), int(before), int(after), seconds)
        table.setdefault(kind, []).append(whole)
    for rows in table.values():
        rows.sort(key=lambda row: (row.after, row.seconds))
    return {kind: table[kind] for kind in KINDS if kind in table}
