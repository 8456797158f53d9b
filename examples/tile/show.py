"""What an example prints when it is run by itself: how its kernel is arranged, and that it gives what numpy gives."""
import numpy as np


def show(case):
  kernel, args, want = case(np.random.default_rng(0))
  args, given = (args[:-1], args[-1]) if isinstance(args[-1], dict) else (args, {})
  kernel(*args, **given)
  wants = want if isinstance(want, tuple) else (want,)
  for got, right in zip(args[-len(wants):], wants): np.testing.assert_allclose(got, right, rtol=1e-4, atol=1e-5)
  print(kernel.arrangements())
  print(f"{kernel.name} gives what numpy gives")
