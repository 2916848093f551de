"""The Python client: what `import deskgrid` loads. It knows the messages, not the broker, not the scheduler."""
