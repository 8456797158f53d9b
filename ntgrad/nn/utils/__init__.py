"""What belongs to layers but is none, where PyTorch has it: ``nn.utils.checkpoint``."""
