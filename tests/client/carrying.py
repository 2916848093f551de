"""What would travel with a function: for programs that tests run."""

import random
from collections.abc import Callable, Sequence
from typing import Any

from deskgrid.client.bag_files import KnownFiles, Noted
from deskgrid.client.bundle import Reached, named_in, reached_from
from deskgrid.client.template import pickle_function

# For functions that refer to it.
seeded = random.Random(0)


def reached_by(function: Callable[..., Any], argument: object = None, modules: Sequence[str] = ()) -> Reached:
    """What ``function(argument)`` reaches, as a bag finds out."""
    noted = Noted(KnownFiles())
    pickled = noted.pickled(lambda: pickle_function(function))
    payload = noted.pack_call((argument,), {}, "the argument")
    classes = noted.pickled(noted.classes.pickled)
    assert noted.functions is not None
    return reached_from(named_in(pickled) | named_in(payload) | named_in(classes), noted.functions.values(), modules)


def files_of(function: Callable[..., Any] | None, argument: object, modules: Sequence[str]) -> list[str]:
    """The source files of that."""
    return list(reached_by(function or len, argument, modules).files)
