"""``torch.backends.mps``: Apple's GPUs, of which none is a device here; source for them is written (``render("metal", ..)``)."""


def is_available() -> bool:
  """False."""
  return False


is_built = is_available
