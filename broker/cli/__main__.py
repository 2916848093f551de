"""``python -m broker.cli``: the command, for processes that we start ourselves."""

from broker.cli.front import main

if __name__ == "__main__":
    main()
