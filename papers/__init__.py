"""The papers on parallel tasks, each repeated by the real scheduler in virtual time. The table of them.

Each has a folder. README.md says what the paper claims, what comes out here, and where its equations are in the code.
`experiment` has its `PAPER`; assumptions.toml says what was assumed, and what the paper printed.
"""

from importlib import import_module

from deskgrid.papers.base import Paper

__all__ = ["PAPERS", "paper_named"]

# The folders, by the names for `deskgrid sleepbench paper`.
PAPERS: dict[str, str] = {
    "sdpn": "deskgrid.papers.cisne",
    "rhap": "deskgrid.papers.rhap",
    "scojo-p": "deskgrid.papers.scojo_p",
    "tla": "deskgrid.papers.tla",
}


def paper_named(name: str) -> Paper:
    """One of `PAPERS`, imported when it is asked for."""
    paper: Paper = import_module(f"{PAPERS[name]}.experiment").PAPER
    return paper
