"""Every operation of Tensor is in the table, and every one that writes in place gives what the other gives."""
from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from fuzz.test_arguments import GOOD

from ntgrad import Tensor
from support.marks import long_half

# tested by tests/unit/test_random.py
RANDOM = """
alpha_dropout bernoulli bernoulli_ normal_ uniform_ dropout dropout1d dropout3d exponential exponential_ feature_alpha_dropout
fractional_max_pool3d geometric geometric_ glorot_uniform gumbel_softmax kaiming_normal kaiming_uniform log_normal log_normal_
multinomial poisson rand_like randint_like randn_like randperm scaled_uniform trunc_normal""".split()
# by test_creation and test_interchange
MADE = "empty empty_like from_dlpack from_numpy new_empty new_full new_tensor new_zeros".split()
# no values, or those of others: by test_tensor_graph
ABOUT = """
allclose assign cpu cuda detach detach_ dim double element_size fill_ float_power half is_floating_point idiv item long
named nbytes nelement replace requires_grad_ sequential to_ train type zero_ data_ptr is_contiguous is_param_ register_hook
register_post_accumulate_grad_hook retain_grad to_numpy""".split()
NAMES = [n for n in dir(Tensor) if n[0] != "_" and callable(getattr(Tensor, n))]


def test_every_operation_is_in_the_table() -> None:
  """By its name, by another name of it, or without the underscore."""
  here = Path(__file__).parent
  text = "\n".join(p.read_text() for p in [*here.glob("*.py"), *here.parent.glob("support/ops*.py")] if p != Path(__file__))
  used = set(re.findall(r"\.(\w+)\b", text)) | set(re.findall(r'"(\w+)"', text))
  found = {getattr(Tensor, n) for n in NAMES if n in used}
  def there(n: str) -> bool: return n in used or getattr(Tensor, n, None) in found
  left = [n for n in NAMES if not there(n) and not (n.endswith("_") and there(n[:-1])) and n not in {*RANDOM, *MADE, *ABOUT}]
  assert not left, "add a row to tests/support/ops*.py for each of these"
  assert not [n for n in (*RANDOM, *MADE, *ABOUT) if n not in NAMES or n in used], "these are gone, or have rows"


# others have a call with random numbers, or another meaning without the underscore
IN_PLACE = [n for n in NAMES if n.endswith("_") and n[:-1] in NAMES and n not in {*RANDOM, *ABOUT} and f"Tensor.{n}" in GOOD]


@pytest.mark.parametrize("name", long_half(IN_PLACE))
def test_what_is_written_in_place(name: str) -> None:
  """x.op_(..) is x, with the values of x.op(..), and views of x see them."""
  good = GOOD[f"Tensor.{name}"]()
  x = good.fn.__self__   # type: ignore[attr-defined]
  want = getattr(x.clone().realize(), name[:-1])(*good.args, **good.kwargs).numpy()
  view = x.reshape(-1).flip(0)
  assert good.fn(*good.args, **good.kwargs) is x
  # functions of a constant and of memory may differ in the last place
  np.testing.assert_allclose(x.numpy(), want, rtol=1e-6)
  np.testing.assert_array_equal(view.numpy(), x.numpy().reshape(-1)[::-1])
