"""Jobs and PCs from other sources than the paper: logs of real jobs, traces and models of real availability."""
