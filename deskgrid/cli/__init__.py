"""The command line. `front` is the way in; each command is loaded when it is called."""
