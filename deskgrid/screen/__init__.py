"""The status screen: draws a snapshot, and keeps the drawing up to date."""
