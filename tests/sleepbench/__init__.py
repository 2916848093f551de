"""The sleep benchmark and the demo: the paper's figures, the arithmetic, the processes, and both commands for real."""
