"""Runs as pictures: matplotlib's in files (the extra ``plot``), rich's on the terminal."""
