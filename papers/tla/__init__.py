"""TLA: where rigid jobs start on several clusters (P.-C. Shih et al. 2013)."""
