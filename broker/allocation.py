"""What becomes of memory that is freed."""

# More than a frame of a large payload, and so little that it does not matter which process keeps it.
KEPT_BYTES = 16 * 2**20


def keep_freed() -> None:
    """Have memory that is freed stay with this process, some tens of MB, where the C library is glibc.

    It gives a free block back to the system at once, and takes it anew page by page, until one of that size has been
    freed: which for frames of large payloads costs as much time as to copy them.
    """
    bytearray(KEPT_BYTES)
