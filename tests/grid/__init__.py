"""The whole grid inside one test: real scheduler, broker and worker state, and client, on a virtual network."""
