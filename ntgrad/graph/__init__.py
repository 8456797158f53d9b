"""The tensor graph: its nodes and how they are made, what shares memory, run-time sizes, names of dimensions, lines of origin."""
