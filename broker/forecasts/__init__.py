"""When bags will be done: forecasts are made in a process of their own, and what was told is judged later."""
