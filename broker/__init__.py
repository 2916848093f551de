"""The server: it decides who may connect, hands out tasks, and keeps bags and results on disk."""
