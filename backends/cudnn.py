"""``torch.backends.cudnn``: what scripts set and ask there. All kernels are ntgrad's own, so nothing of it changes them, and the
same program gives the same bits always."""
enabled = deterministic = allow_tf32 = True
benchmark = False           # ``config.beam`` measures kernels where that is wanted


def is_available() -> bool:
  """False."""
  return False


def version() -> None:
  """None: there is no cuDNN."""
