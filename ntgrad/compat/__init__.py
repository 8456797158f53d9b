"""What public modules show, and why a name of PyTorch or tinygrad is not there."""
