"""What holds of the state after every event. Tests check it; a grid does not."""
