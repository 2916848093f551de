"""The broker's one port: sockets, connections, the order in which messages are handled, and messages to send."""
