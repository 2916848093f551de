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

    base: Any = cloudpickle.CloudPickler

    class Noting(base):  # type: ignore[misc]
        """Notes functions: what they import is not among the names in a pickle."""

        def reducer_override(self, value: Any) -> Any:
            if type(value) is FunctionType:
                note_function(value)
            return super().reducer_override(value)

    return Noting
