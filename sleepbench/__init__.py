"""The paper's sleep benchmark, simulated and live."""
