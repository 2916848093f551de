"""The environments and workloads. Every peer's Python imports this file, so it uses only the standard library."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import cast

from benchmarks.environments.base import Environment
from benchmarks.workloads.base import Workload


@dataclass(frozen=True, slots=True)
class Place:
    """The location of an environment's class. ``peer``: the virtual environment in which it runs; "" for our own."""

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
# The environment with which the others are compared.
OURS = "deskgrid"

# In the order in which they run. Adjacent workloads share one start if they need the same number of workers and leave
# the system unchanged. The last four are for deskgrid only.
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
    """A new environment. Raises ImportError if its packages are not installed."""
    place = ENVIRONMENTS[key]
    made = getattr(import_module(f"benchmarks.environments.{place.module}"), place.name)()
    return cast(Environment, made)


def workload(key: str) -> Workload:
    """The workload of that name."""
    return cast(Workload, import_module(f"benchmarks.workloads.{key}").WORKLOAD)
