"""What survives, on real processes and real disks: the rest of it is on the virtual network, in `tests.grid`."""
