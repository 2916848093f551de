"""Which window of a table of the broker's windows.toml is open. Pure."""

from deskgrid.windows.windows_file import calendar_of


def opened(table: str, posix: float) -> float | None:
    """When the window of a table that is open at ``posix`` opened; None: none is open."""
    from datetime import timedelta  # only where there is a file

    calendar = calendar_of(table, "windows")
    windows = calendar.windows(calendar.day_of(posix) - timedelta(days=1), 2)
    return next((opening for opening, closing in windows if opening <= posix < closing), None)
