"""What crosses the wire, who may speak, what is remembered: everything around the one port."""
