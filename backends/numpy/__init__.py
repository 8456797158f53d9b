"""The numpy backend: evaluates linear UOps with arrays. Slow and exact; what every other backend is compared with."""
