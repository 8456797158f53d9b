"""Random numbers: generators, distributions, permutations, and what a jit makes of them."""
from __future__ import annotations

import math
from typing import Any, Callable, Iterator

import numpy as np
import pytest

import ntgrad
from ntgrad import Device, Generator, Tensor, Variable, dtypes
from ntgrad.errors import ArgumentError, CaptureError, DTypeError, ShapeError
from ntgrad.tensor.random import default_generator
from support.marks import long


@pytest.fixture(autouse=True)
def _numpy() -> Iterator[None]:
  Device.DEFAULT = "NUMPY"
  Tensor.manual_seed(11)
  yield
  Device.DEFAULT = None
  dtypes.default_float, dtypes.default_int = dtypes.float32, dtypes.int32


def value(t: Tensor) -> Any: return t.numpy()


DRAWN: dict[str, Callable[[Any], Tensor]] = {
  "rand": lambda g: Tensor.rand(2, 3, generator=g), "randn": lambda g: Tensor.randn(5, generator=g),
  "randint": lambda g: Tensor.randint(5, low=0, high=1000, generator=g),
  "uniform": lambda g: Tensor.uniform(4, high=2, generator=g),
  "normal": lambda g: Tensor.normal(4, mean=1, generator=g), "randperm": lambda g: Tensor.randperm(9, generator=g),
  "bernoulli": lambda g: Tensor.full((40,), 0.5).bernoulli(generator=g),
  "multinomial": lambda g: Tensor.ones(9).multinomial(4, generator=g),
  "poisson": lambda g: Tensor.full((9,), 5.0).poisson(generator=g),
  "dropout": lambda g: Tensor.ones(40).dropout(0.5, True, generator=g),
  "in place": lambda g: Tensor.zeros(4).normal_(generator=g),
  "like": lambda g: Tensor.zeros(4).rand_like(generator=g), "kaiming": lambda g: Tensor.kaiming_uniform(4, 2, generator=g),
  "exponential": lambda g: Tensor.exponential(4, generator=g)}


@pytest.mark.parametrize("name", DRAWN)
def test_a_generator_is_a_sequence_of_its_own(name: str) -> None:
  """The same numbers as the default generator's with that seed; the default one stays where it is."""
  make = DRAWN[name]
  g = Generator(7)
  first, second = value(make(g)), value(make(g))
  here = ntgrad.default_generator.get_state().tolist()
  assert (first != second).any() and here[0] == 0
  np.testing.assert_array_equal(value(make(g.manual_seed(7))), first)
  Tensor.manual_seed(7)
  np.testing.assert_array_equal(value(make(None)), first)


def test_states() -> None:
  g = Generator(5)
  assert g.initial_seed() == 5 and Generator().initial_seed() != Generator().initial_seed()
  Tensor.rand(3, generator=g)
  state = g.get_state()
  assert state.tolist() == [3, 5] and state.dtype is dtypes.uint64
  a = value(Tensor.rand(4, generator=g))
  np.testing.assert_array_equal(value(Tensor.rand(4, generator=g.set_state(state))), a)
  np.testing.assert_array_equal(value(Tensor.rand(4, generator=Generator().set_state([3, 5]))), a)
  assert g.seed() == g.initial_seed() and g.get_state().tolist()[0] == 0
  for bad, error in (([1], ShapeError), ([1.0, 2.0], DTypeError), ([-1, 2], ArgumentError)):
    with pytest.raises(error, match="set_state"): g.set_state(bad)
  for seed in (-1, 2 ** 64, 1.5, "a"):
    with pytest.raises(ArgumentError): g.manual_seed(seed)  # type: ignore[arg-type]


@pytest.mark.parametrize("device", ["NUMPY", "CPU"])
def test_replays_draw_the_next_numbers(device: str) -> None:
  a, b = Generator(1), Generator(2)
  def draw() -> tuple[Tensor, ...]:
    return (Tensor.rand(3, generator=a, device=device), Tensor.rand(2, generator=b, device=device),
            Tensor.rand(4, device=device), Tensor.randn(3, generator=a, device=device))
  runs = []
  for call in (ntgrad.jit(lambda x: tuple([t + x for t in draw()])), lambda x: draw()):
    for g, seed in ((a, 1), (b, 2), (ntgrad.default_generator, 3)): g.manual_seed(seed)
    runs.append([[value(t).tolist() for t in call(Tensor.zeros(1, device=device))] for _ in range(5)])
    runs[-1].append([g.get_state().tolist() for g in (a, b)])
  assert runs[0] == runs[1]
  j = ntgrad.jit(lambda x, g: x + Tensor.rand(3, generator=g, device=device))   # given as an argument: a capture each
  got = [value(j(Tensor.zeros(1, device=device), g)).tolist() for g in (a.manual_seed(1), b.manual_seed(1)) for _ in range(4)]
  assert got[:4] == got[4:] and got[0] != got[3]


@pytest.mark.parametrize("what", [lambda g: g.manual_seed(1), lambda g: g.seed(), lambda g: Generator(1),
                                  lambda g: g.set_state([0, 1]), lambda g: Tensor.manual_seed(1)])
def test_a_sequence_does_not_begin_in_a_capture(what: Callable[[Generator], Any]) -> None:
  g = Generator(1)
  def f(x: Tensor) -> Tensor:
    what(g)
    return x + Tensor.rand(3, generator=g)
  j = ntgrad.jit(f)
  j(Tensor.zeros(3))
  with pytest.raises(CaptureError, match="starts a sequence"): j(Tensor.zeros(3))


# ---- distributions
def moments(x: Tensor, mean: float, std: float) -> None:
  a = value(x).astype(np.float64)
  assert abs(a.mean() - mean) < 5 * std / math.sqrt(a.size) and abs(a.std() - std) < 0.05 * std + 1e-9, (a.mean(), a.std())


@long
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_moments(dtype: str) -> None:
  n = 20000
  moments(Tensor.exponential(n, lambd=2, dtype=dtype), 0.5, 0.5)
  moments(Tensor.geometric(n, p=0.25, dtype=dtype), 4, math.sqrt(0.75) / 0.25)
  moments(Tensor.log_normal(n, mean=0, std=0.25, dtype=dtype), math.exp(1 / 32), math.exp(1 / 32) * math.sqrt(math.expm1(1 / 16)))
  moments(Tensor.trunc_normal(n, dtype=dtype), 0, 0.8796)
  moments(Tensor.trunc_normal(n, mean=1, std=2, a=11, b=13, dtype=dtype), 11.3689, 0.3425)
  for rate in (0.2, 4.0, 11.0, 900.0): moments(Tensor.full((n,), rate, dtype=dtype).poisson(), rate, math.sqrt(rate))
  moments(Tensor.full((n,), 0.3, dtype=dtype).bernoulli(), 0.3, math.sqrt(0.21))
  assert Tensor.geometric(3, p=1.0).tolist() == [1, 1, 1] and Tensor.geometric(3).dtype is dtypes.int32


@long
def test_poisson_by_its_probabilities() -> None:
  for rate in (9.5, 10.5):
    n = 200000
    seen = np.bincount(value(Tensor.full((n,), rate).poisson()).astype(int), minlength=40)[:28]
    want = np.array([math.exp(-rate + k * math.log(rate) - math.lgamma(k + 1)) for k in range(28)]) * n
    assert ((seen - want) ** 2 / want)[want > 5].sum() < 60
  odd = value(Tensor([0.0, -1.0, math.nan, 1e30, math.inf]).poisson())
  assert odd[0] == 0 and np.isnan(odd[1:3]).all() and odd[3] == np.float32(1e30) and odd[4] == math.inf


def test_probabilities_that_are_none() -> None:
  assert Tensor([0.0, 1.0, -3.0, 2.0, math.nan]).bernoulli().tolist() == [0, 1, 0, 1, 0]
  with pytest.raises(DTypeError): Tensor([0, 1]).bernoulli()
  with pytest.raises(ArgumentError): Tensor([0.5]).bernoulli(2.0)
  with pytest.raises(ArgumentError): Tensor.geometric(3, p=0.0)
  with pytest.raises(ArgumentError): Tensor.exponential(3, lambd=0.0)
  assert Tensor.zeros(3, dtype="int32").bernoulli_(1.0).tolist() == [1, 1, 1]


@long
def test_permutations() -> None:
  for n in (0, 1, 2, 1000): assert sorted(Tensor.randperm(n).tolist()) == list(range(n))
  first = np.bincount([Tensor.randperm(3).tolist()[0] for _ in range(24)], minlength=3)
  assert Tensor.randperm(4).dtype is dtypes.int32 and Tensor.randperm(4, dtype="int64").dtype is dtypes.int64
  assert first.min() > 3
  with pytest.raises(ArgumentError): Tensor.randperm(1000, dtype="int8")
  with pytest.raises(ArgumentError): Tensor.randperm(-1)


def test_samples_without_replacement() -> None:
  w = Tensor([1.0, 0.0, 3.0, 4.0])
  drawn = value(w.expand(8000, 4).multinomial(3))
  assert (np.sort(drawn, 1) == [0, 2, 3]).all()
  np.testing.assert_allclose(np.bincount(drawn[:, 0], minlength=4) / 8000, [0.125, 0, 0.375, 0.5], atol=0.03)
  assert abs((drawn[drawn[:, 0] == 3, 1] == 2).mean() - 0.75) < 0.03   # of what is left, by weight
  with pytest.raises(ArgumentError, match="5 samples of 4"): w.multinomial(5)
  assert len(w.multinomial(5, True).tolist()) == 5


# ---- making
def test_made() -> None:
  x = Tensor([[1, 2]], dtype="int16")
  for t in (x.new_zeros(2, 3), x.new_ones((2, 3)), x.new_empty(2, 3), x.new_full((2, 3), 4)):
    assert t.shape == (2, 3) and t.dtype is dtypes.int16
  assert x.new_tensor([1.5]).dtype is dtypes.float32 and x.new_full((2,), 1, dtype="float64").dtype is dtypes.float64
  made = Tensor.zeros(size=(2, 3)), Tensor.rand(size=(2, 3)), Tensor.full(size=(2, 3), fill_value=1)
  assert all(t.shape == (2, 3) for t in made)
  assert Tensor.ones(size=4).shape == (4,) and x.randint_like(3, 5).dtype is dtypes.int16
  a = np.arange(3, dtype=np.uint8)
  t = Tensor.from_numpy(a)
  a[0] = 9
  assert t.tolist() == [0, 1, 2] and t.dtype is dtypes.uint8
  np.testing.assert_allclose(value(Tensor.logspace(-1, 2, 4, base=2)), [0.5, 1, 2, 4])
  assert Tensor.tri(2, 3, -5).tolist() == [[0] * 3] * 2 and Tensor.tri(2, 1, 9).tolist() == [[1], [1]]
  with pytest.raises(ArgumentError, match="give one of them"): Tensor.zeros(2, size=(3,))
  with pytest.raises(ArgumentError, match="base"): Tensor.logspace(0, 1, 2, base=0)
  with pytest.raises(DTypeError): Tensor.from_numpy([1])


# ---- default dtypes
MADE: dict[str, Callable[[], Tensor]] = {
  "list": lambda: Tensor([0.5, 1.5]), "number": lambda: Tensor(0.5), "full": lambda: Tensor.full((2,), 0.5),
  "zeros": lambda: Tensor.zeros(2), "empty": lambda: Tensor.empty(2), "none": lambda: Tensor(None), "eye": lambda: Tensor.eye(2),
  "arange": lambda: Tensor.arange(0, 1, 0.5), "linspace": lambda: Tensor.linspace(0, 1, 3), "tri": lambda: Tensor.tri(2),
  "rand": lambda: Tensor.rand(2), "randn": lambda: Tensor.randn(2), "exponential": lambda: Tensor.exponential(2),
  "exp": lambda: Tensor([1, 2]).exp(), "sigmoid": lambda: Tensor([1, 2]).sigmoid(), "division": lambda: Tensor([1, 2]) / 2,
  "times": lambda: Tensor([1, 2]) * 0.5, "mean": lambda: Tensor([1, 2]).mean(), "std": lambda: Tensor([1, 2]).std(),
  "norm": lambda: Tensor([1, 2]).norm(), "softmax": lambda: Tensor([1, 2]).softmax(),
  "loss": lambda: Tensor([1, 2]).mse_loss([1, 2])}


@pytest.mark.parametrize("d", ["float64", "float16", "bfloat16"])
def test_the_default_float(d: str) -> None:
  ntgrad.set_default_dtype(d)
  assert ntgrad.get_default_dtype() is dtypes.default_float is dtypes.of(float) is dtypes.of(d)
  for name, make in MADE.items(): assert make().realize().dtype.name == d, name
  assert Tensor(np.ones(2, np.float32)).dtype is dtypes.float32   # an array has one of its own


def test_the_default_int() -> None:
  made: list[Callable[[], Tensor]] = [lambda: Tensor([1, 2]), lambda: Tensor(3), lambda: Tensor.arange(4),
                                      lambda: Tensor.randint(3), lambda: Tensor.randperm(3), lambda: Tensor.full((2,), 1)]
  for d in ("int64", "uint8", "int16"):
    dtypes.default_int = dtypes.of(d)
    assert [make().realize().dtype.name for make in made] == [d] * len(made)
    assert Tensor([70000, 2 ** 40]).dtype is Tensor(2 ** 40).dtype is Tensor.arange(2 ** 40, 2 ** 40 + 2).dtype is dtypes.int64


def test_defaults_that_are_none() -> None:
  for name, bad in (("default_float", "int32"), ("default_int", "float32"), ("default_int", "bool"), ("default_float", 3),
                    ("default_int", dtypes.index)):
    with pytest.raises(DTypeError): setattr(dtypes, name, bad)
  assert dtypes.default_float is dtypes.float32 and dtypes.default_int is dtypes.int32


def test_a_jit_is_captured_anew_for_other_defaults() -> None:
  j = ntgrad.jit(lambda x: x.exp())
  x = Tensor([1, 2]).realize()
  for d in ("float32", "float32", "float32", "float64", "float64", "float64"):
    ntgrad.set_default_dtype(d)
    assert j(x).dtype.name == d


def test_fp8_by_its_other_name() -> None:
  assert dtypes.float8_e4m3fn is dtypes.of("float8_e4m3fn") is dtypes.float8_e4m3


def test_the_counter_is_a_number() -> None:
  """Also after numbers were drawn whose count was a run-time size: else each draw would keep the expressions of all before it."""
  n = Variable("n", 1, 64).bind(5)
  Tensor.rand(n, 2).realize()
  assert type(default_generator._counter) is int
