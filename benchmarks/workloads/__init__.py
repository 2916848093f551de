"""What is measured, one file each; `base` is what they have in common."""
