"""Real processes that are killed, frozen and cut off at random, while a bag of tasks goes on."""
