"""The files with which an operating system starts the worker or the broker at boot."""
