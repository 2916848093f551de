"""Programs and libraries of others, as they are, on a private grid: ``make clients`` installs them for that."""
