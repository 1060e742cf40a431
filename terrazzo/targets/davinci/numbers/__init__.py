"""A scheduled program with numbers: NumPy on the addressed memories."""
