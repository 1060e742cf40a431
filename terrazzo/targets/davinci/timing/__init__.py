"""A scheduled program in time: when each pipe does what, and what bounds it."""
