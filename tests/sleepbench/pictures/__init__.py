"""Pictures of runs, and the chart on the terminal."""
