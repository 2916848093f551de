"""Ray: a head node on this machine, with its own scheduler (raylet), control service (GCS) and object store."""

import os
from collections.abc import Sequence
from typing import Any

import ray

from benchmarks.environments.base import Environment, Function
from benchmarks.proc import command_line, started

# Bytes; enough for what is measured, and no more than a small machine can spare.
OBJECT_STORE = 500 * 2**20


class Ray(Environment):
    """Remote functions with the default options: a task whose process dies is tried three times again."""

    LABEL = "Ray"
    NOTE = "f.remote; ray.get of all. No form for many calls but that"
    PACKAGES = ("ray",)
    SCHEDULERS = ("gcs_server", "raylet/raylet")

    def __init__(self) -> None:
        self._remote: dict[Function, Any] = {}

    def start(self, workers: int) -> None:
        """A node of so many cores."""
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        ray.init(
            address="local",
            num_cpus=workers,
            include_dashboard=False,
            object_store_memory=OBJECT_STORE,
            log_to_driver=False,
        )

    def _of(self, function: Function) -> Any:
        if function not in self._remote:
            self._remote[function] = ray.remote(function)
        return self._remote[function]

    def one(self, function: Function, item: Any) -> Any:
        """Submit and wait."""
        return ray.get(self._of(function).remote(item))

    def submit(self, function: Function, items: Sequence[Any]) -> Any:
        """A reference each."""
        remote = self._of(function)
        return [remote.remote(item) for item in items]

    def gather(self, submitted: Any) -> list[Any]:
        """All at once; if one failed, one after the other."""
        try:
            return list(ray.get(submitted))
        except Exception:
            return [_outcome(reference) for reference in submitted]

    def workers(self) -> list[int]:
        """The processes of tasks, named after what they run."""
        named = {pid: command_line(pid) for pid in started()}
        return [pid for pid, name in named.items() if name.startswith("ray::") and "Agent" not in name]

    def stop(self) -> None:
        """The node, too."""
        ray.shutdown()


def _outcome(reference: Any) -> Any:
    try:
        return ray.get(reference)
    except Exception as error:
        return error
