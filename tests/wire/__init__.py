"""What crosses the wire: every message there and back, everything else refused, and the join lines."""
