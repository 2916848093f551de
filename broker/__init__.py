"""The server: who may connect, what is handed out to whom, and what is kept on disk."""
