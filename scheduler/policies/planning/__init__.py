"""Plans for whole windows."""
