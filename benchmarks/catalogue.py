"""Which environments and workloads there are. The standard library is all that this needs: every Python reads it."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import cast

from benchmarks.environments.base import Environment
from benchmarks.workloads.base import Workload


@dataclass(frozen=True, slots=True)
class Place:
    """Where an environment's class is. ``peer``: the virtual environment that it runs in; "" for our own."""

    module: str
    name: str
    peer: str = ""


ENVIRONMENTS: Mapping[str, Place] = {
    "deskgrid": Place("deskgrid", "Deskgrid"),
    "deskgrid-insecure": Place("deskgrid", "Insecure"),
    "deskgrid-power": Place("deskgrid", "Power"),
    "futures": Place("executor", "Futures"),
    "dask": Place("dask", "Dask", "dask"),
    "ray": Place("ray", "Ray", "ray"),
    "parsl": Place("parsl", "Parsl", "parsl"),
    "ipyparallel": Place("ipyparallel", "IPyParallel", "ipyparallel"),
    "hyperqueue": Place("hyperqueue", "HyperQueue", "hyperqueue"),
    "celery": Place("celery", "Celery", "celery"),
}
# What the others are compared with.
OURS = "deskgrid"

# In the order in which they run; those that need as many workers, and leave things as they were, share a start. The
# last four concern deskgrid only.
WORKLOADS = (
    "burst",
    "latency",
    "payload",
    "sleep",
    "churn",
    "memory",
    "idle",
    "restart",
    "placing",
    "simulator",
)


def environment(key: str) -> Environment:
    """A new one. Raises ImportError where its packages are not."""
    place = ENVIRONMENTS[key]
    made = getattr(import_module(f"benchmarks.environments.{place.module}"), place.name)()
    return cast(Environment, made)


def workload(key: str) -> Workload:
    """The one of that name."""
    return cast(Workload, import_module(f"benchmarks.workloads.{key}").WORKLOAD)
