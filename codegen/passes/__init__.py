"""The passes, a file each, by the names that ``python -m ntgrad passes`` lists; ``builder.py`` has their tools."""
