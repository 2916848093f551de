"""``python -m deskgrid.cli``: the command line, for processes that deskgrid itself starts."""

from deskgrid.cli.start import main

if __name__ == "__main__":
    main()
