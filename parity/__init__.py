"""Find out whether two implementations of a post-training objective compute the same thing."""
