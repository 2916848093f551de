"""The systems that are measured, one file each; `base` is what they have in common."""
