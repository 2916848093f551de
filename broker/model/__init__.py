"""The state that everything in the broker shares, and the values in it. No sockets."""
