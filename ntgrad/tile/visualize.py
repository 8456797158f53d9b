"""What an arrangement does, without a kernel or a device: as arrays of numbers, and as pictures of which program has which
element of the source, how its levels divide it, what is masked."""
from __future__ import annotations

import colorsys
import inspect
import itertools
import math
import os
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

import numpy as np

from ntgrad.codegen.index import numbers
from ntgrad.codegen.ir import ArgumentError
from ntgrad.codegen.ir.paths import shown_path, usable
from ntgrad.codegen.kernel.arrangement import Arrangement
from ntgrad.graph import checked

from .open_sizes import Sizes
from .tensor import Tensor, check_takes, named

CELL, GAP, LINE_HEIGHT, MARGIN = 26.0, 22.0, 17.0, 12.0   # pixels
MOST_CELLS, MOST_ELEMENTS = 10_000, 4_000_000   # that are drawn, and counted
INK, GREY, MASKED, UNUSED = "#222222", "#9a9a9a", "#ececec", "#ffffff"
WIDTHS = 3.0, 1.6, 0.9  # of the borders of levels 0, 1 and all deeper ones but the innermost
_Numbers = np.ndarray[Any, np.dtype[np.int64]]


def arranged(arrangement: Callable[..., Any], tensors: Sequence[Tensor], subs: Mapping[Any, Any]) -> tuple[Tensor, ...]:
  """The tensors as ``arrangement`` gives them back, named after its parameters where it has as many."""
  given = tuple(t.subs(subs) for t in tensors)
  count = len(given)
  try: parameters = inspect.signature(arrangement).parameters.values()
  except (TypeError, ValueError): parameters = {}.values()
  names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)][:count]
  if len(names) == count:   # dimensions may be meant by the names that they have now
    given = tuple(t.subs({k: v for k, v in subs.items() if isinstance(k, str)}) for t in named(given, names))
  check_takes("arrangement", arrangement, count)
  out = arrangement(*given)
  out = (out,) if isinstance(out, Tensor) else tuple(out) if isinstance(out, (tuple, list)) else ()
  if len(out) != count or not all(isinstance(t, Tensor) for t in out):
    raise ArgumentError("an arrangement gives one arranged tensor for each of its tensors; "
                        f"this one gives {len(out)} arranged tensors for {count}")
  return out


@checked
def simulate_arrangement(arrangement: Callable[..., Any], tensors: Sequence[Tensor],
                         subs: Mapping[Any, Any] | None = None) -> tuple[tuple[_Numbers, ...], tuple[_Numbers, ...]]:
  """The elements of each source, numbered row by row, and the same numbers as the programs see them.

  ``subs`` has values for Symbols, as ``Tensor.eval`` takes them. Two tuples of int64 arrays, one a tensor: the first with the
  shapes of the sources; the second with the programs (the outermost level, flattened) first, then the dimensions of the other
  levels, -1 where an element lies outside. Raises ArgumentError for Symbols without a value.
  """
  sources, targets = [], []
  for t in arranged(arrangement, tensors, subs or {}):
    whole = t.concrete(subs)
    shape = numbers(whole.source)
    sources.append(np.arange(math.prod(shape), dtype=np.int64).reshape(shape))
    picture = whole.elements()
    inner = picture.shape[len(whole.shape):]
    targets.append(picture.reshape((-1, *inner) if whole.shape else inner))
  return tuple(sources), tuple(targets)


# ---- pictures

@dataclass
class Picture:
  """A drawing: shows itself in a notebook, ``save`` writes it as SVG or PNG, ``svg`` is its text."""
  width: float = 0.0
  height: float = 0.0
  rects: list[tuple[float, float, float, float, str]] = field(default_factory=list)
  lines: list[tuple[float, float, float, float, str, float]] = field(default_factory=list)
  texts: list[tuple[float, float, str, float, str, bool]] = field(default_factory=list)

  def __repr__(self) -> str:
    parts = f"{len(self.rects)} rectangles, {len(self.lines)} lines, {len(self.texts)} texts"
    return f"<Picture of {math.ceil(self.width)} × {math.ceil(self.height)}: {parts}; .save(\"picture.svg\") writes it>"

  def rect(self, x: float, y: float, w: float, h: float, fill: str) -> None:
    self.rects.append((x, y, w, h, fill))
    self._grow(x + w, y + h)

  def line(self, x1: float, y1: float, x2: float, y2: float, width: float, color: str = INK) -> None:
    self.lines.append((x1, y1, x2, y2, color, width))
    self._grow(max(x1, x2), max(y1, y2))

  def text(self, x: float, y: float, text: str, size: float = 12.0, color: str = INK, centred: bool = False) -> None:
    self.texts.append((x, y, text, size, color, centred))
    self._grow(x + (0 if centred else 0.62 * size * len(text)), y + size / 2)

  def _grow(self, x: float, y: float) -> None: self.width, self.height = max(self.width, x), max(self.height, y)

  @property
  def svg(self) -> str:
    """The drawing as SVG text."""
    w, h = math.ceil(self.width + MARGIN), math.ceil(self.height + MARGIN)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{w}" height="{h}" viewBox="0 0 {w} {h}" font-family="monospace">',
           f'<rect width="{w}" height="{h}" fill="white"/>']
    out += [f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" fill="{fill}"/>' for x, y, w, h, fill in self.rects]
    out += [f'<line x1="{a:g}" y1="{b:g}" x2="{c:g}" y2="{d:g}" stroke="{color}" stroke-width="{width:g}" '
            f'stroke-linecap="square"/>' for a, b, c, d, color, width in self.lines]
    anchors = "", ' text-anchor="middle"'
    out += [f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" fill="{color}" dominant-baseline="central"{anchors[centred]}>'
            f"{escape(text)}</text>" for x, y, text, size, color, centred in self.texts]
    return "\n".join([*out, "</svg>"])

  def _repr_svg_(self) -> str: return self.svg

  def save(self, path: str | Path) -> None:
    """Write it to ``path``, as SVG or (with matplotlib) as PNG. Raises ArgumentError for another ending."""
    kind = Path(path).suffix.lower()
    if kind not in (".svg", ".png"): raise ArgumentError(f"visualize: pictures are saved as .svg or .png, got {shown_path(path)}")
    with usable("visualize", path):
      if kind == ".svg": Path(path).write_text(self.svg, encoding="utf-8")
      else: self._png(path)

  def _png(self, path: str | Path) -> None:
    try:
      from matplotlib.backends.backend_agg import FigureCanvasAgg
      from matplotlib.figure import Figure
      from matplotlib.patches import Rectangle
    except ImportError:
      raise ArgumentError("visualize: a PNG is made by matplotlib, which is not installed; an .svg needs nothing") from None
    w, h = self.width + MARGIN, self.height + MARGIN
    figure = Figure(figsize=(w / 72, h / 72), dpi=144)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, w), ylim=(h, 0))
    axes.axis("off")
    for x, y, rw, rh, fill in self.rects: axes.add_patch(Rectangle((x, y), rw, rh, facecolor=fill, edgecolor="none"))
    for a, b, c, d, color, width in self.lines:
      axes.plot((a, c), (b, d), color=color, linewidth=width, solid_capstyle="projecting")
    for x, y, text, size, color, centred in self.texts:
      axes.text(x, y, text.replace("$", r"\$"), fontsize=size * 0.9, color=color, va="center",
                ha="center" if centred else "left", family="monospace")
    FigureCanvasAgg(figure).print_png(str(path))


@dataclass(frozen=True)
class Cell:
  """An element of the source, or a place outside it: where each level of the first program that has it has it (flat)."""
  where: Sizes
  others: int            # how many more programs have it
  masked: bool


def cells(a: Arrangement) -> dict[Sizes, Cell]:
  """{source index: Cell} for every element that a program has; masked ones lie outside, or were cut off and padded."""
  picture = a.elements()
  if picture.size == 0: return {}
  valid = picture.ravel() >= 0
  at = np.stack([i.ravel() for i in a.offsets()]) if a.source else np.zeros((0, picture.size), np.int64)
  size = np.array(a.source, np.int64)[:, None]
  near = ((at >= -np.maximum(size, 8)) & (at < size + np.maximum(size, 8))).all(0)  # what lies far outside is not drawn
  at, valid, flat = at[:, near], valid[near], np.flatnonzero(near)
  low, high = at.min(1, initial=0), at.max(1, initial=0)
  extent = tuple((high - low + 1).tolist())
  place = np.ravel_multi_index(tuple(at - low[:, None]), extent) if a.source else np.zeros(len(flat), np.int64)
  order = np.argsort(~valid, kind="stable")                 # valid ones are found first
  spots, first = np.unique(place[order], return_index=True)
  first = order[first]
  programs = math.prod(numbers(a.shape))
  program = flat // max(picture.size // max(programs, 1), 1)
  same = valid[first][np.searchsorted(spots, place)] == valid  # masked places that some program does have are that program's
  pairs = np.unique(place[same] * programs + program[same])
  owners = np.bincount(np.searchsorted(spots, pairs // programs), minlength=len(spots))
  levels, rest = [], flat[first]
  for dims in reversed(a.levels):
    rest, within = np.divmod(rest, math.prod(numbers(dims)))
    levels.append(within)
  out = {}
  for n, spot in enumerate(spots):
    index = tuple(int(i) + int(b) for i, b in zip(np.unravel_index(spot, extent), low)) if a.source else ()
    out[index] = Cell(tuple(int(level[n]) for level in reversed(levels)), int(owners[n]) - 1, not bool(valid[first[n]]))
  return out


def _color(where: Sequence[int], masked: bool = False) -> str:
  """A program's colour; what its inner levels divide alternates in lightness."""
  red, green, blue = colorsys.hls_to_rgb(where[0] * 0.381966 % 1.0, 0.80 - 0.07 * (sum(where[1:-1]) % 2), 0.62)
  if masked: red, green, blue = (0.25 * c + 0.68 for c in (red, green, blue))
  return "#" + "".join(f"{round(255 * min(c, 1.0)):02x}" for c in (red, green, blue))


def draw(picture: Picture, name: str, a: Arrangement, top: float) -> float:
  """One tensor beneath ``top``; gives where the next one may begin."""
  found = cells(a)
  source = numbers(a.source)
  picture.text(MARGIN, top + 8, a.text(name), 13)
  y = top + 8 + LINE_HEIGHT
  more = 2 - len(source)
  two = (1,) * more + source                          # rows and columns, with the leading dimensions before
  index2 = {(0,) * more + i: c for i, c in found.items()}
  rows, columns = (range(min([0, *(i[d] for i in index2)]), max([two[d] - 1, *(i[d] for i in index2)]) + 1) for d in (-2, -1))
  panels = list(itertools.product(*map(range, two[:-2])))
  width = len(columns) * CELL
  if len(rows) * len(columns) * len(panels) > MOST_CELLS:
    raise ArgumentError(f"visualize: {name} of {source} has too many elements for a picture ({MOST_CELLS} at most); "
                        "give smaller sizes")
  at_most = max(1, int(1400 // (width + GAP)))
  bottom = y
  for n, lead in enumerate(panels):
    x0 = MARGIN + n % at_most * (width + GAP)
    y0 = y + n // at_most * (len(rows) * CELL + GAP + LINE_HEIGHT)
    if len(two) > 2:
      picture.text(x0, y0 + 6, f"[{', '.join(map(str, lead))}, :, :]", 11, GREY)
      y0 += LINE_HEIGHT
    bottom = max(bottom, _panel(picture, x0, y0, lead, index2, two, rows, columns))
  return _legend(picture, bottom + 14, a, found)


def _panel(picture: Picture, x0: float, y0: float, lead: Sizes, index: Mapping[Sizes, Cell],
           shape: Sequence[int], rows: range, columns: range) -> float:
  def is_inside(r: int, c: int) -> bool: return 0 <= r < shape[-2] and 0 <= c < shape[-1]
  for r, c in itertools.product(rows, columns):
    x, y = x0 + (c - columns[0]) * CELL, y0 + (r - rows[0]) * CELL
    right, below, inside, cell = x + CELL, y + CELL, is_inside(r, c), index.get((*lead, r, c))
    if cell or inside: picture.rect(x, y, CELL, CELL, _color(cell.where, cell.masked) if cell else UNUSED)
    if cell and cell.masked: picture.line(x + 3, below - 3, right - 3, y + 3, 1.0, GREY)
    elif cell:
      label = f"{cell.where[0]}" + (f"+{cell.others}" if cell.others else "")
      picture.text(x + CELL / 2, y + CELL / 2, label, min(12.0, 1.5 * CELL / max(len(label), 1)), INK, True)
    for other, ends in (((r, c + 1), (right, y, right, below)), ((r + 1, c), (x, below, right, below)),
                        ((r, c - 1), (x, y, x, below)), ((r - 1, c), (x, y, right, y))):
      beside = index.get((*lead, *other))
      if other < (r, c) and (beside or is_inside(*other)): continue  # it drew this border
      if cell or beside: picture.line(*ends, *_border(cell, beside))
      elif inside: picture.line(*ends, 0.4, GREY)
  return y0 + len(rows) * CELL


def _border(a: Cell | None, b: Cell | None) -> tuple[float, str]:
  """Between two elements: that of the outermost level in which they differ."""
  if a is None or b is None: return WIDTHS[0], INK
  level = next((n for n, (i, j) in enumerate(zip(a.where, b.where)) if i != j), len(a.where))
  return (0.4, GREY) if level >= len(a.where) - 1 and level > 0 else (WIDTHS[min(level, 2)], INK)


def _legend(picture: Picture, y: float, a: Arrangement, found: Mapping[Sizes, Cell]) -> float:
  """What the borders and colours are."""
  last = len(a.levels) - 1
  for n, dims in enumerate(a.levels):
    what = "one program an element" if n == 0 else "a tile" if n == last else "indexed or looped over"
    picture.line(MARGIN, y, MARGIN + 20, y, *((WIDTHS[min(n, 2)], INK) if n < last or n == 0 else (0.4, GREY)))
    picture.text(MARGIN + 28, y, f"level {n}: {dims}, {what}", 11)
    y += LINE_HEIGHT
  masked = sum(c.masked for c in found.values())
  for there_is, fill, text in ((masked > 0, MASKED, "masked: no element of the source"),
                               (len(found) - masked < math.prod(numbers(a.source)), UNUSED, "no program has it")):
    if not there_is: continue
    picture.rect(MARGIN + 4, y - 6, 12, 12, fill)
    for ends in ((4, -6, 16, -6), (4, 6, 16, 6), (4, -6, 4, 6), (16, -6, 16, 6), *([(5, 5, 15, -5)] if fill == MASKED else [])):
      picture.line(MARGIN + ends[0], y + ends[1], MARGIN + ends[2], y + ends[3], 0.6, GREY)
    picture.text(MARGIN + 28, y, text, 11)
    y += LINE_HEIGHT
  if not any(c.others for c in found.values()): return y
  picture.text(MARGIN, y, "p+n", 11)
  picture.text(MARGIN + 28, y, "program p has it, and n more programs", 11)
  return y + LINE_HEIGHT


@checked
def visualize(arrangement: Tensor | Callable[..., Any] | Sequence[Tensor], tensors: Sequence[Tensor] | None = None,
              subs: Mapping[Any, Any] | None = None, save_path: str | os.PathLike[str] | None = None) -> Picture:
  """Draw an arranged tensor, several of them, or what an arrangement function makes of ``tensors``.

  Each element of the source has the number and colour of the program (the outermost level) that has it; thick borders are those
  of programs, thinner ones those of the levels beneath, and struck elements are masked. ``subs`` has values for Symbols, as
  ``Tensor.eval`` takes them. The Picture shows itself in a notebook; ``save_path`` (.svg, or .png with matplotlib) keeps it.
  Raises ArgumentError for Symbols without a value, and for more than 10,000 elements.
  """
  if callable(arrangement):
    if tensors is None: raise ArgumentError("visualize: an arrangement is drawn with tensors=(…) to arrange")
    shown: Sequence[Tensor] = arranged(arrangement, tensors, subs or {})
  else: shown = (arrangement,) if isinstance(arrangement, Tensor) else tuple(arrangement)
  picture, y = Picture(), MARGIN
  for t in shown:
    a = t.concrete(subs)
    if (count := math.prod(numbers(a.view.shape))) > MOST_ELEMENTS:
      raise ArgumentError(f"visualize: {t} has {count} elements; give smaller sizes")
    y = draw(picture, t.name, a, y) + GAP
  if save_path is not None: picture.save(Path(save_path))
  return picture
