"""The passes, a file each, by the names that ``python -m ntgrad passes`` lists. ``codegen/pipeline.py`` has their order."""
