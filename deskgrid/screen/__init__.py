"""The status screen: a snapshot in, a picture out, and the loop that keeps it up to date."""
