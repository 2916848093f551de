"""Tasks for live workers. Each is made inside a function, so that it is pickled with its code."""

from pathlib import Path

from tests.executor.rig import call, python_template
from tests.peers import Client


def square() -> bytes:
    """The template of a task that is done at once."""

    def run(number: int) -> int:
        return number * number

    return python_template(run)


def waiting() -> bytes:
    """The template of a task that notes each start in ``<name>.starts`` and its process in ``<name>.pid``.

    It ends when the file ``go`` is there; what it returns is how often it was started.
    """

    def run(folder: str, name: str, go: str) -> int:
        import os
        import threading
        from pathlib import Path

        starts = Path(folder, f"{name}.starts")
        with starts.open("a") as file:
            file.write("started\n")
        Path(folder, f"{name}.pid").write_text(str(os.getpid()))
        while not Path(folder, go).exists():
            threading.Event().wait(0.005)
        Path(folder, f"{name}.end").touch()
        return starts.read_text().count("started")

    return python_template(run)


def submit_waiting(client: Client, folder: Path, *names: str, go: str = "go", runtime: float = 30.0) -> str:
    """A bag of `waiting` tasks; its id."""
    return client.submit([call(str(folder), name, go) for name in names], waiting(), runtime=runtime)


def starts(folder: Path, name: str) -> int:
    """How often a `waiting` task has been started so far."""
    path = folder / f"{name}.starts"
    return path.read_text().count("started\n") if path.exists() else 0
