"""What numbers are: plain, replicas, bounds, a tape over any of them, and operations on all."""
