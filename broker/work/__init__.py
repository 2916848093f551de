"""What the broker does with tasks: attempts, environments, orders, and the workers that run them."""
