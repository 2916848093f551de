"""A virtual CISNE: a laboratory whose PCs parallel jobs share, and those who say how long a job will take there."""
