"""What is wrong with a scheduled program, found while it runs with numbers."""
