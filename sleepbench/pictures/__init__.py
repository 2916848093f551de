"""Pictures of runs: by matplotlib in files (the extra ``plot``), by rich on the terminal."""
