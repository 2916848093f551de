"""Pickles by value what a worker cannot import, and tells which functions are among it."""

import io
import pickle
from functools import cache
from types import FunctionType
from typing import Any

from deskgrid.files import note_function


def pickle_by_value(value: object) -> bytes:
    """Pickle ``value`` with cloudpickle, which may raise anything."""
    buffer = io.BytesIO()
    _pickler()(buffer, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
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
