"""``python -m deskgrid.cli``: the command, for processes that we start ourselves."""

from deskgrid.cli.front import main

if __name__ == "__main__":
    main()
