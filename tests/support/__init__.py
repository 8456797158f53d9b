"""What several test folders share. Importable as ``support`` (pytest's pythonpath has tests/)."""
