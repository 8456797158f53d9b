"""The table of signatures: what its rows make, and the stubs that are written of it."""
from __future__ import annotations

import ast
import inspect
import os
import pickle
import subprocess
import sys
import textwrap
import traceback
from pathlib import Path
from typing import Any

import pytest

import ntgrad
from ntgrad import Tensor, nn
from ntgrad.compat.signatures import AT_TOP, DIFFERS, FUNCTIONAL, LINALG, SPECIAL, TOP, each_layer
from ntgrad.errors import ArgumentError
from ntgrad.functions.stubs import stubs
from ntgrad.nn.made import MadeLayer
from ntgrad.tensor.made import Made, Row, function, parts, rows

F: Any = nn.functional
TABLES = {"ntgrad": TOP, "nn.functional": FUNCTIONAL, "linalg": LINALG, "special": SPECIAL}
NAMED = {"ntgrad": ntgrad, "nn.functional": F, "linalg": ntgrad.linalg, "special": ntgrad.special}
EVERY = [(at, name, row) for at, table in TABLES.items() for name, row in rows(table).items()]


def defaults(fn: Any) -> dict[str, Any]: return {n: p.default for n, p in inspect.signature(fn).parameters.items()}


# ---- rows
@pytest.mark.parametrize("at", TABLES)
def test_rows_are_functions_with_a_text_that_calls_a_method(at: str) -> None:
  for name, row in rows(TABLES[at]).items():
    made, fn = Made(name, row), getattr(NAMED[at], name)
    assert fn.__name__ == name and pickle.loads(pickle.dumps(fn)) is fn and fn.__doc__ and len(fn.__doc__) > 5, name
    assert callable(made.method) and list(inspect.signature(fn).parameters)[0] == made.first, name
    given = {n for n in made.at.values()}
    required = [n for n, p in made.theirs.items() if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD and n != "self"]
    assert set(required) <= given, f"{name}: {required}, {given}"


def test_where_defaults_differ_from_the_methods_there_is_a_reason() -> None:
  differs = set()
  for _, name, row in EVERY:
    made = Made(name, row)
    own = defaults(function(name, row))
    for n, m in made.at.items():
      theirs = made.theirs[m]
      if theirs.kind is not theirs.VAR_POSITIONAL and own[n] != theirs.default and f"{m}=" not in row.fixed: differs.add(n)
  assert differs == set(DIFFERS), "each reason is for a default that differs, each such default has a reason"
  assert all(len(why) > 15 for why in DIFFERS.values())


def test_arguments_without_a_parameter_of_the_method_are_few() -> None:
  """What has no effect is listed here, so that a wrong name in a row is found."""
  extra = {f"{name}.{a.arg}" for _, name, row in EVERY for made in [Made(name, row)] for a in made.parameters
           if a.arg not in made.at and a.arg not in ("size_average", "reduce", "inplace", "out")}
  assert extra == {*[f"{n}.driver" for n in ("svdvals", "svd", "lstsq")],
                   *[f"{n}.cudnn_enabled" for n in ("batch_norm", "instance_norm")],
                   *[f"{n}_like.memory_format" for n in "empty full ones rand randn zeros".split()],
                   "gumbel_softmax.eps", "softmax._stacklevel", "softmin._stacklevel", "log_softmax._stacklevel",
                   "searchsorted.out_int32"}


def test_a_wrong_row_is_told() -> None:
  with pytest.raises(ValueError, match="no row"): rows({"input": "relu!"})
  with pytest.raises(ValueError, match="no row"): MadeLayer("ReLU: relu")


def test_names_at_the_top_are_functions_of_nn() -> None:
  assert all(getattr(ntgrad, n) is getattr(F, n) for n in AT_TOP)


# ---- what they do
def test_older_arguments_and_written_results() -> None:
  x, y = Tensor([1.0, -2.0]), Tensor([0.5, 1.0])
  each = F.soft_margin_loss(x, y, reduction="none").numpy()
  assert F.soft_margin_loss(x, y, size_average=False).item() == pytest.approx(each.sum())
  assert F.soft_margin_loss(x, y, reduce=False).numpy().tolist() == each.tolist()
  z = Tensor([1.0, -2.0])
  assert F.elu(z, 0.5, inplace=True) is z and z.numpy()[1] == pytest.approx(-0.43233, abs=1e-4)
  assert F.leaky_relu_(z, 0.5) is z and z.numpy()[1] == pytest.approx(-0.21617, abs=1e-4)
  out = Tensor.zeros(2).realize()
  assert F.normalize(x, dim=0, out=out) is out and float(out.square().sum().item()) == pytest.approx(1.0)
  assert len(F.max_pool1d_with_indices(Tensor.arange(8.0).reshape(1, 1, 8), 2)) == 2


def test_a_traceback_names_the_function_and_the_layer() -> None:
  for call, name in ((lambda: F.celu(Tensor([1.0]), 0), "celu"), (lambda: nn.CELU(0)(Tensor([1.0])), "<layer CELU>"),
                     (lambda: ntgrad.norm(Tensor([1.0]), p="no"), "norm")):
    try: call()
    except Exception: said = traceback.format_exc()
    assert name in said, said


def test_parameters_are_refused_by_the_functions_own_names() -> None:
  with pytest.raises(ArgumentError, match="leaky_relu: negative_slope is 'x'"): F.leaky_relu(Tensor([1.0]), "x")
  with pytest.raises(ArgumentError, match="elu: alpha is 'x'"): F.elu(Tensor([1.0]), "x")
  with pytest.raises(ArgumentError, match="nn.Dropout: p is 2"): nn.Dropout(2)
  with pytest.raises(ArgumentError, match="reduction 'no'; it takes 'mean', 'sum' or 'none'"): nn.MSELoss("no")
  with pytest.raises(ArgumentError, match="'batchmean', 'sum' or 'none'"): nn.KLDivLoss("no")


def test_layers_are_classes_of_their_rows() -> None:
  for row in each_layer():
    made = MadeLayer(row)
    kind = getattr(nn, made.name)
    assert kind.__module__ == "ntgrad.nn.layers" and kind.__doc__ and issubclass(kind, nn.Module), row
    given = [n for n in inspect.signature(kind).parameters if n != "self"]
    assert given == [n for n in made.fields if n != "*"], row
    assert list(inspect.signature(kind.__call__).parameters)[1:] == made.called, row


def test_a_row_of_ones_own() -> None:
  double = function("double", Row("input, other=2.0", "mul", ""))
  assert double(Tensor([3.0])).item() == 6.0 and "other" in str(inspect.signature(double))


# ---- stubs
def test_stubs_are_written() -> None:
  for path, text in stubs():
    assert path.exists() and path.read_text() == text, "run python -m ntgrad stubs"
    named = {n.name for n in ast.parse(text).body if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
    assert len(named) > 15


@pytest.mark.long
def test_a_type_checker_reads_them(tmp_path: Path) -> None:
  pytest.importorskip("mypy")
  (tmp_path / "script.py").write_text(textwrap.dedent("""
    import ntgrad
    from ntgrad import Tensor, linalg, nn
    from ntgrad.nn import functional as F
    x = Tensor.rand(2, 3)
    reveal_type(F.elu(x, 0.5, inplace=True))
    reveal_type(ntgrad.logsumexp(x, 1))
    reveal_type(nn.ELU(alpha=0.5)(x))
    reveal_type(linalg.det(x))
    F.elu(x, alhpa=0.5)
    nn.CrossEntropyLoss(reductoin="sum")
    """))
  root = str(Path(ntgrad.__file__).parents[1])
  env = os.environ | ({} if "site-packages" in root else {"MYPYPATH": root})
  done = subprocess.run([sys.executable, "-m", "mypy", "script.py"], cwd=tmp_path, env=env, capture_output=True, text=True)
  assert done.stdout.count('"ntgrad.tensor.Tensor"') == 4, done.stdout
  assert done.stdout.count("Unexpected keyword argument") == 2, done.stdout


def test_parts() -> None:
  import re
  assert parts(re.compile(r"(a)(b)?"), "a") == ["a", ""]
