"""The Python client, which `deskgrid.Grid` loads. It knows the messages, but neither the broker nor the scheduler."""
