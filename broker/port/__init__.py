"""The one port: sockets and connections, the order in which messages are handled, and what waits to be sent."""
