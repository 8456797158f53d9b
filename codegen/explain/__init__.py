"""A kernel as people read it: its arrangements, found from its indices; its text; its source in the tile language."""
