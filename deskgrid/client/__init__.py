"""The Python client: what `deskgrid.Grid` loads. It knows the messages, not the broker, not the scheduler."""
