"""Pickles by value what a worker cannot import, and tells which functions are among it."""

import io
import pickle
from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any

from deskgrid.client.generators import hidden_generator
from deskgrid.files import note_function


def has_to_travel_by_value(pickled: bytes | bytearray) -> bool:
    """Whether a pickle refers to the user's program, which a worker cannot import.

    Or whether it has a method of an object: that may be ``random.random``, whose object is not to bring its state.
    """
    return b"__main__" in pickled or b"getattr" in pickled


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
        elif (reduced := hidden_generator(value)) is not None:
            return reduced
        return base.reducer_override(pickler, value)

    return type("Noting", (base,), {"reducer_override": reducer_override})
