"""Runs in the Python of a peer's virtual environment: ``python -m benchmarks.driver KEY``, with orders as JSON lines.

An order is ``{"do": "start", "workers": N, "faults": false}`` or ``{"do": "run", "workload": KEY, "size": {...}}``. The
answer to each is a line: ``{"started": ...}``, ``{"figures": ...}``, ``{"missing": why}`` or ``{"failed": why}``. The
end of the input is an order to stop.

Rule 1: answers go to a private copy of stdout. Output of the peers themselves goes to stderr.
Rule 2: a failure is an answer, too. The driver then waits for the next order.
"""

import json
import os
import platform
import sys
import traceback
from collections.abc import Mapping
from importlib import metadata
from typing import Any

from benchmarks.catalogue import environment, workload
from benchmarks.environments.base import Environment, Missing
from benchmarks.tasks import noop
from benchmarks.workloads.base import timed


def main(key: str) -> None:
    """Carry out orders until there are no more."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    found: Environment | None = None
    try:
        for line in sys.stdin:
            answer: Mapping[str, Any]
            try:
                found = found or environment(key)
                answer = _carry_out(found, json.loads(line))
            except (ImportError, Missing) as error:
                answer = {"missing": f"{type(error).__name__}: {error}"}
            except Exception as error:
                traceback.print_exc()
                answer = {"failed": f"{type(error).__name__}: {error}"}
            print(json.dumps(answer), file=out, flush=True)
    finally:
        if found is not None:
            found.stop()


def _carry_out(found: Environment, order: Mapping[str, Any]) -> Mapping[str, Any]:
    if order["do"] == "start":
        found.faults = order["faults"]
        return _start(found, order["workers"])
    return {"figures": workload(order["workload"]).run(found, order["size"])}


def _start(found: Environment, workers: int) -> Mapping[str, Any]:
    """Start the system, and measure the time to its first result. The client's own imports are not counted.

    Without workers nothing is started.
    """
    seconds = timed(lambda: (found.start(workers), found.one(noop, 0)))[0] if workers else 0.0
    versions = {package: metadata.version(package) for package in found.PACKAGES}
    told = {"label": found.LABEL, "note": found.NOTE, "python": platform.python_version(), "versions": versions}
    return {"started": {"start_s": seconds, **told}}


if __name__ == "__main__":
    main(sys.argv[1])
