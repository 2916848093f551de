"""Other work and other PCs than the paper's: logs of real jobs, traces and models of real availability."""
