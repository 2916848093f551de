"""Small files in the formats of the archives, written for these tests."""

import gzip
from collections.abc import Iterable
from pathlib import Path

EVENTS = "# event_id component_id node_id platform_id node_name event_type event_start_time event_stop_time reason"


def job(number: int = 1, *, submit: float = 0, run: float = 60, processors: float = 1, requested: float = -1) -> str:
    """A line of a Standard Workload Format log."""
    return f"{number} {submit} 5 {run} {processors} -1 -1 64 {requested} -1 1 7 7 -1 -1 -1 -1 -1"


def log(folder: Path, lines: Iterable[str], name: str = "some.swf") -> Path:
    """A log of these lines, gzipped if its name ends so."""
    data = "".join(f"{line}\n" for line in lines).encode()
    path = folder / name
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


def event(
    node: int, kind: int, start: float, stop: float, *, name: str = "", platform: int = 1, component: int = 0
) -> str:
    """A line of event_trace.tab."""
    return f"0\t {component}\t {node}\t{platform}\t{name or f'pc{node}'}\t{kind}\t{start}\t{stop}\tNULL"


def node(number: int, cores: str = "NULL", processors: str = "NULL", platform: int = 1) -> str:
    """A line of node.tab."""
    return "\t".join([str(number), str(platform), f"pc{number}", *["NULL"] * 5, cores, processors, *["NULL"] * 6])


def trace(folder: Path, *events: str, nodes: Iterable[str] = (), platforms: Iterable[str] = ()) -> Path:
    """A data set in ``folder``; without node.tab or platform.tab if there is nothing to be in them."""
    tables = {"event_trace.tab": [EVENTS, *events], "node.tab": list(nodes), "platform.tab": list(platforms)}
    for name, lines in tables.items():
        if lines:
            (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder
