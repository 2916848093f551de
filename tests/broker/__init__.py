"""The broker: its journal and keys, its answers without sockets (`office`), and the live server over real ones."""
