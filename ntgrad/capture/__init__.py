"""Functions whose launches are recorded and launched again: ``ntgrad.jit``. The recorder itself is the engine's."""
