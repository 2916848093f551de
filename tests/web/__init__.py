"""The grid in a browser: the server by its own sockets, and the page in a real browser where there is one."""
