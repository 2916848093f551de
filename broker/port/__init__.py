"""The one port: sockets and connections, what is read in which turn, and what waits to be sent."""
