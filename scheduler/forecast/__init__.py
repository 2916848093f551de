"""When bags will be done: a picture of the grid is run forward many times, with runtimes and windows drawn anew."""
