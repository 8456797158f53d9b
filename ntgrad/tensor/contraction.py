"""Sums of products of tensors whose dimensions have labels: how a formula of einsum is read, in which order tensors are
multiplied two at a time, and the nodes of one such product.

A label is a letter, or, of the dimensions that ``...`` stands for, ``.1`` for the last one, ``.2`` for the one before it, and so
on.
"""
from __future__ import annotations

import math
from typing import Any, Collection, Mapping, NamedTuple, Sequence

from ntgrad.codegen.ir.errors import ArgumentError, ShapeError, shown
from ntgrad.codegen.ir.uop import UOp
from ntgrad.graph import nodes as graph
from ntgrad.graph.names import ordinal, text

Labels = Sequence[str]
_EXACT = 6      # as many tensors are multiplied in the best order; of more the pair is next that makes the least of its factors
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


class Sum(NamedTuple):
  """What a formula says of tensors: the labels of each one's dimensions, those of the result, the size of each label."""
  terms: list[list[str]]
  output: list[str]
  sizes: dict[str, int]


# ---- formulas
def written(formula: Any, operands: Sequence[Any]) -> tuple[str, Sequence[Any]]:
  """A formula as text, and its tensors; also where each tensor is followed by a list of numbers. Raises ArgumentError."""
  if isinstance(formula, str): return formula, operands
  given = (formula, *operands)
  lists = [*given[1::2], *given[-1:]] if len(given) % 2 else list(given[1::2])
  if len(given) < 2:
    raise ArgumentError(f"einsum: {shown(formula)}; give a formula (ij,jk->ik) and tensors, or tensors with lists")
  words = [_word(labels) for labels in lists]
  if len(given) % 2: return f"{','.join(words[:-1])}->{words[-1]}", given[:-1:2]
  return ",".join(words), given[::2]


def _word(labels: Any) -> str:
  if not isinstance(labels, (list, tuple)): raise ArgumentError(f"einsum: {shown(labels)} where a list of labels is due")
  out = []
  for n in labels:
    if n is not Ellipsis and (not isinstance(n, int) or isinstance(n, bool) or not 0 <= n < len(_LETTERS)):
      raise ArgumentError(f"einsum: label {shown(n)} in {shown(labels)}; it takes ints from 0 to {len(_LETTERS) - 1}, and ...")
    out.append("..." if n is Ellipsis else _LETTERS[n])
  return "".join(out)


def read(formula: str, tensors: Sequence[Any]) -> Sum:
  """What a formula says of tensors. Raises ArgumentError for one that is none, ShapeError for tensors that do not fit it."""
  inputs, arrow, result = formula.replace(" ", "").partition("->")
  words = inputs.split(",")
  plain = [w.replace("...", "", 1) for w in (*words, result)]
  if len(words) != len(tensors) or not all([w.isalpha() or not w for w in plain]) or len(set(plain[-1])) != len(plain[-1]):
    raise ArgumentError(f"einsum: {formula!r} for {len(tensors)} tensors; name the dims of each, with commas between, "
                        "and those of the result after -> (ij,jk->ik), each once; ... stands for any number of dims")
  if unknown := [c for c in plain[-1] if c not in inputs]:
    raise ArgumentError(f"einsum: {formula!r}: letter {unknown[0]!r} of the result is in no tensor")
  terms = [_labels(formula, w, k, tensors) for k, w in enumerate(words)]
  many = max([sum([c[0] == "." for c in t]) for t in terms])
  dots = [f".{k}" for k in range(many, 0, -1)]
  if not arrow: output = dots + sorted([c for c in set("".join(plain)) if inputs.count(c) == 1])
  else:
    at = result.find("...")
    output = [*plain[-1]] if at < 0 else [*result[:at], *dots, *result[at + 3:]]
  return Sum(terms, output, _sizes(formula, terms, tensors))


def _labels(formula: str, word: str, k: int, tensors: Sequence[Any]) -> list[str]:
  """A label for each dimension of a tensor."""
  at, n = word.find("..."), tensors[k].ndim
  more = n - len(word) + (3 if at >= 0 else 0)
  if more < 0 or more and at < 0:
    raise ShapeError(f"einsum: {formula!r}: {word!r} for the {ordinal(k)} tensor, whose shape is {text(tensors[k])}; "
                     "it takes a letter a dimension")
  return [*word] if at < 0 else [*word[:at], *[f".{i}" for i in range(more, 0, -1)], *word[at + 3:]]


def _sizes(formula: str, terms: Sequence[Labels], tensors: Sequence[Any]) -> dict[str, int]:
  """The size of each label; a dimension of 1 goes with any size, but not within one tensor."""
  found: dict[str, tuple[int, int]] = {}   # size, tensor
  for k, (labels, x) in enumerate(zip(terms, tensors)):
    for c, size in zip(labels, x.shape):
      first = found.setdefault(c, (size, k))
      if first[0] == 1 and first[1] != k: found[c] = size, k
      elif first[0] != size and (size != 1 or first[1] == k):
        what = f"letter {c!r}" if c[0] != "." else f"dimension {-int(c[1:])} of ..."
        where = f"the {ordinal(k)}" if first[1] != k else "the same"
        raise ShapeError(f"einsum: {formula!r}: {what} is {first[0]} in the {ordinal(first[1])} tensor and {size} in {where}: "
                         f"shapes {', '.join(map(text, tensors))}")
  return {c: size for c, (size, _) in found.items()}


# ---- the order of products
def order(terms: Sequence[Labels], output: Labels, sizes: Mapping[str, int]) -> list[tuple[int, int]]:
  """Which two tensors to multiply at each step; a product's number is the next one after the tensors'.

  As many as six are multiplied with the fewest multiplications that any order has; of more, the two come next whose product is
  smallest beside them.
  """
  sets = [frozenset(t) for t in terms]
  if len(sets) <= 2: return [(0, 1)] if len(sets) == 2 else []
  return (_best if len(sets) <= _EXACT else _greedy)(sets, frozenset(output), {c: int(n) for c, n in sizes.items()})


def _work(labels: Collection[str], sizes: Mapping[str, int]) -> int: return math.prod([sizes[c] for c in labels])


def _best(sets: Sequence[frozenset[str]], output: frozenset[str], sizes: Mapping[str, int]) -> list[tuple[int, int]]:
  n = len(sets)
  full = (1 << n) - 1
  every: list[frozenset[str]] = [frozenset().union(*[sets[i] for i in range(n) if m >> i & 1]) for m in range(full + 1)]
  left = [every[m] & (output | every[full ^ m]) if m & (m - 1) else every[m] for m in range(full + 1)]   # what a product keeps
  cost: dict[int, tuple[int, int]] = {1 << i: (0, 0) for i in range(n)}   # tensors -> multiplications, one side of the last
  for m in range(1, full + 1):
    if m in cost: continue
    found, half = [], (m - 1) & m
    while half:
      if half > m ^ half: found.append((cost[half][0] + cost[m ^ half][0] + _work(left[half] | left[m ^ half], sizes), half))
      half = (half - 1) & m
    cost[m] = min(found)
  steps: list[tuple[int, int]] = []
  def make(m: int) -> int:
    if not m & (m - 1): return m.bit_length() - 1
    one = cost[m][1]
    steps.append((make(one), make(m ^ one)))
    return n + len(steps) - 1
  make(full)
  return steps


def _greedy(sets: Sequence[frozenset[str]], output: frozenset[str], sizes: Mapping[str, int]) -> list[tuple[int, int]]:
  live = dict(enumerate(sets))
  steps: list[tuple[int, int]] = []
  while len(live) > 1:
    pair = min([(_price((i, j), live, output, sizes), (i, j)) for i in live for j in live if i < j])[1]
    product = _kept(pair, live, output)
    live = {i: s for i, s in live.items() if i not in pair} | {len(sets) + len(steps): product}
    steps.append(pair)
  return steps


def _price(pair: tuple[int, int], live: Mapping[int, frozenset[str]], output: frozenset[str],
           sizes: Mapping[str, int]) -> tuple[int, int]:
  """How much larger a product is than its factors, and the work that it takes."""
  a, b = live[pair[0]], live[pair[1]]
  return _work(_kept(pair, live, output), sizes) - _work(a, sizes) - _work(b, sizes), _work(a | b, sizes)


def _kept(pair: tuple[int, int], live: Mapping[int, frozenset[str]], output: frozenset[str]) -> frozenset[str]:
  others = [s for i, s in live.items() if i not in pair]
  return (live[pair[0]] | live[pair[1]]) & output.union(*others)


# ---- nodes
def ready(u: UOp, labels: Labels, sizes: Mapping[str, int]) -> tuple[UOp, list[str]]:
  """A tensor with each label once: a repeated one is the diagonal. Dimensions of 1 whose label has another size go."""
  out = list(labels)
  while again := next((c for c in out if out.count(c) > 1), None):
    i = out.index(again)
    j = out.index(again, i + 1)
    rest = [d for d in range(len(out)) if d not in (i, j)]
    u = graph.permute(u, (*rest, i, j))
    *s, n, _ = u.shape
    u = graph.tile(graph.reshape(u, (*s, n * n)), [(1, 1, 1)] * len(s) + [(1, n + 1, 1)])
    u = graph.reshape(u, (*s, n))
    out = [*[out[d] for d in rest], again]
  thin = [d for d, c in enumerate(out) if u.shape[d] == 1 and sizes[c] != 1]
  return graph.drop(u, thin), [c for d, c in enumerate(out) if d not in thin]


def summed(u: UOp, labels: Labels, keep: Collection[str]) -> tuple[UOp, list[str]]:
  """The sum over the labels that are not kept."""
  axes = [d for d, c in enumerate(labels) if c not in keep]
  return graph.drop(graph.total(u, axes), axes) if axes else u, [c for c in labels if c in keep]


def placed(u: UOp, labels: Labels, into: Labels) -> UOp:
  """Dimensions in the order of ``into``, with dims of 1 for labels that are not there."""
  u = graph.permute(u, tuple([labels.index(c) for c in into if c in labels]))
  at = dict(zip([c for c in into if c in labels], u.shape))
  return graph.reshape(u, tuple([at.get(c, 1) for c in into]))


def multiplied(a: UOp, la: Labels, b: UOp, lb: Labels, keep: Collection[str], output: Labels) -> tuple[UOp, list[str]]:
  """One product of two tensors of one dtype, summed over the labels that are not kept: what both have and keep, what only the
  first has, what only the second has; the sum is over what both have, so that it is a product of matrices. The last product has
  the order of the result."""
  a, la = summed(a, la, {*keep, *lb})
  b, lb = summed(b, lb, {*keep, *la})
  both = [c for c in la if c in lb]
  out = [*[c for c in both if c in keep], *[c for c in la if c not in lb], *[c for c in lb if c not in la]]
  if set(out) <= set(output): out = [c for c in output if c in out]
  every = [*out, *[c for c in both if c not in keep]]
  a, b = placed(a, la, every), placed(b, lb, every)
  full = tuple([n if n != 1 else m for n, m in zip(a.shape, b.shape)])
  a, b = graph.expand(a, full), graph.expand(b, full)
  product = graph.and_(a, b) if a.dtype.kind == "b" else graph.mul(a, b)
  return summed(product, every, out)
