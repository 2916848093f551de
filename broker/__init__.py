"""Who may speak, what is remembered: everything around the one port."""
