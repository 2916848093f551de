"""The papers on parallel tasks, each repeated by the real scheduler in virtual time. The table of them."""

from importlib import import_module

from deskgrid.sleepbench.papers.base import Paper

__all__ = ["PAPERS", "paper_named"]

# Each module has its `PAPER`. The file NAME.toml beside it says what was assumed, and what the paper printed.
PAPERS: dict[str, str] = {
    "sdpn": "deskgrid.sleepbench.papers.sdpn",
    "rhap": "deskgrid.sleepbench.papers.rhap",
    "scojo-p": "deskgrid.sleepbench.papers.scojo_p",
    "tla": "deskgrid.sleepbench.papers.tla",
}


def paper_named(name: str) -> Paper:
    """One of `PAPERS`, imported when it is asked for."""
    paper: Paper = import_module(PAPERS[name]).PAPER
    return paper
