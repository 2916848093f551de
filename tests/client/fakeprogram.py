"""A stand-in for our command line, for tests of the keeper: it records when it starts and ends, and does nothing else.

``fakeprogram.py FOLDER broker|worker OPTIONS`` makes two files in FOLDER: ``started-NAME``, which has its options, and
``ended-NAME``, which names the files of programs that had ended before. If FOLDER has a file ``slow``, the start never
ends by itself, and nobody looks at stdin meanwhile.
"""

import sys
import threading
from pathlib import Path


def say(path: Path, text: str) -> None:
    """Make a file that is whole as soon as somebody sees it."""
    made = path.with_name(f"new-{path.name}")
    made.write_text(text, encoding="utf-8")
    made.rename(path)


def main(folder: Path, role: str, *options: str) -> None:
    """Be a broker or a worker until stdin ends."""
    if (folder / "refuse").exists():
        sys.exit("the home is of a newer version")
    name = options[options.index("--name") + 1] if role == "worker" else role
    say(folder / f"started-{name}", " ".join(options))
    if (folder / "slow").exists():
        threading.Event().wait()
    if role == "broker":
        home = Path(options[options.index("--home") + 1])
        (home / "worker.join").write_text("worker@127.0.0.1:1/insecure\n", encoding="utf-8")
        (home / "client.join").write_text("client@127.0.0.1:1/insecure\n", encoding="utf-8")
        print("ready", flush=True)
    sys.stdin.buffer.read()
    before = sorted(path.name for path in folder.glob("ended-*"))
    say(folder / f"ended-{name}", " ".join(before))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
