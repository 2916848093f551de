"""What only a long run shows: memory that grows, and what piles up from day to day."""
