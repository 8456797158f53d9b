"""Renderers under the names that scripts for tinygrad import them by; they are in ``ntgrad.backends``."""
