"""The tile language: kernels as an arrangement of their parameters and an application to one tile of each."""
