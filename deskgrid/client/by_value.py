"""Pickles by value what a worker cannot import, and tells which functions are among it."""

import io
import pickle
from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any

from deskgrid.files import note_function


def pickle_by_value(value: object, apart: Callable[[pickle.PickleBuffer], object] | None = None) -> bytes:
    """Pickle ``value`` with cloudpickle, which may raise anything. ``apart``: takes large buffers out of the pickle."""
    buffer = io.BytesIO()
    _pickler()(buffer, protocol=pickle.HIGHEST_PROTOCOL, buffer_callback=apart).dump(value)
    return buffer.getvalue()


@cache
def _pickler() -> Any:
    # Here, because opening a Grid or attaching to a bag does not need it.
    import cloudpickle

    base = cloudpickle.CloudPickler

    def reducer_override(pickler: Any, value: Any) -> Any:
        """Note functions: what they import is not among the names in a pickle."""
        if type(value) is FunctionType:
            note_function(value)
        return base.reducer_override(pickler, value)

    return type("Noting", (base,), {"reducer_override": reducer_override})
