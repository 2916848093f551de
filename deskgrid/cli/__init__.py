"""The command line. `front` is the entry point; each command is loaded when it is called."""
