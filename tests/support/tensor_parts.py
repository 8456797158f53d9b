"""Which parts of ``Tensor`` use names of which others, read from their source.

What a value is, is followed from line to line as far as a few rules go: ``self``, parameters and results by their annotations.
Names count on tensors, and on values that may be anything (``Any``); operators on tensors only. Functions of a part's file count
where the part calls them.
"""
from __future__ import annotations

import ast
import inspect
import sys
from functools import cache
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from ntgrad import Tensor
from ntgrad.core import Base

# kinds of values: a tensor, a class of tensors, what may be anything, something else; a tuple or list has a tuple of kinds
TENSOR, CLASS, ANY, OTHER = "tensor", "class", "any", "other"
_BINARY = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "truediv", ast.FloorDiv: "floordiv", ast.Mod: "mod",
           ast.Pow: "pow", ast.MatMult: "matmul", ast.BitAnd: "and", ast.BitOr: "or", ast.BitXor: "xor", ast.LShift: "lshift",
           ast.RShift: "rshift"}
_COMPARE = {ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne"}
_UNARY = {ast.USub: "neg", ast.UAdd: "pos", ast.Invert: "invert"}


class Use(NamedTuple):
  """A name that a part uses: where it stands first, and whether that is on a tensor for certain."""
  line: int
  sure: bool


def either(kinds: Any) -> Any:
  """What a value is that is one of these."""
  return next((k for k in (TENSOR, CLASS, ANY) if k in kinds), next((k for k in kinds if k != OTHER), OTHER))


def element(kind: Any) -> Any:
  """What stands in a list, tuple or tensor of this kind."""
  return either(kind) if isinstance(kind, tuple) else kind if kind in (TENSOR, ANY) else OTHER


def annotated(node: ast.expr | None) -> Any:
  """What a value with this annotation is."""
  if node is None: return ANY
  if isinstance(node, ast.BinOp): return either((annotated(node.left), annotated(node.right)))
  if isinstance(node, ast.Subscript):
    head, of = ast.unparse(node.value), node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if head in ("tuple", "list", "Sequence", "Iterator"): return tuple([annotated(o) for o in of if ast.unparse(o) != "..."])
    return CLASS if head == "type" and annotated(of[0]) == TENSOR else OTHER
  text = ast.unparse(node)
  return TENSOR if text in ("Self", "Operand") or text in classes() else ANY if text == "Any" else OTHER


class Reader(ast.NodeVisitor):
  """What the class ``name`` of a source uses: ``found`` has the names. ``scope`` is what its file has imported, ``returns`` what
  methods of tensors give."""

  def __init__(self, source: str, name: str, scope: dict[str, Any], returns: dict[str, Any]) -> None:
    tree = ast.parse(source)
    self.scope, self.returns = scope, returns
    self.functions = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}   # those that were not read yet
    self.found: dict[str, Use] = {}
    self.env: dict[str, Any] = {}
    for n in next(c for c in tree.body if isinstance(c, ast.ClassDef) and c.name == name).body:
      if isinstance(n, ast.FunctionDef): self.function(n, True)
      elif isinstance(n, ast.Assign):
        self.kind(n.value)   # exp = member(_unary, ..)
        for t in n.targets if ast.unparse(n.value) == "_written" else ():   # exp_ = log_ = _written
          if isinstance(t, ast.Name): self.use(t.id[:-1], n)

  def use(self, name: str, node: Any, sure: bool = True) -> None:
    if name not in self.found or sure > self.found[name].sure: self.found[name] = Use(node.lineno, sure)

  def function(self, node: Any, method: bool = False) -> None:
    before, self.env, a = self.env, dict(self.env), node.args
    for p in [*a.posonlyargs, *a.args, *a.kwonlyargs]:
      self.env[p.arg] = OTHER if isinstance(node, ast.Lambda) else annotated(p.annotation)
    if a.vararg: self.env[a.vararg.arg] = (annotated(a.vararg.annotation),)
    if method and a.args:
      marks = [ast.unparse(d) for d in node.decorator_list]
      if "staticmethod" not in marks: self.env[a.args[0].arg] = CLASS if "classmethod" in marks else TENSOR
    if isinstance(node, ast.Lambda): self.kind(node.body)
    else:
      for s in node.body: self.visit(s)
    self.env = before

  # ---- what expressions are; what they use is noted
  def kind(self, node: ast.expr | None) -> Any:
    made = getattr(self, f"kind_{type(node).__name__}", None)
    if made is not None: return made(node)
    if node is not None: self.generic_visit(node)
    return OTHER

  def kind_Name(self, node: ast.Name) -> Any:
    if node.id in self.env: return self.env[node.id]
    if node.id in classes(): return CLASS
    if (fn := self.functions.pop(node.id, None)) is not None:   # a function of this file
      before, self.env = self.env, {}
      self.function(fn)
      self.env = before
    return OTHER

  def kind_Attribute(self, node: ast.Attribute) -> Any:
    of = self.kind(node.value)
    if of not in (TENSOR, CLASS, ANY): return OTHER
    self.use(node.attr, node, of != ANY)
    is_property = isinstance(inspect.getattr_static(Tensor, node.attr, None), property)
    return ANY if of == ANY else self.returns.get(node.attr, OTHER) if is_property else OTHER

  def kind_Call(self, node: ast.Call) -> Any:
    fn, given = node.func, [self.kind(a) for a in node.args]
    for k in node.keywords: self.kind(k.value)
    of = self.kind(fn)
    if isinstance(fn, ast.Name) and fn.id not in self.env: return TENSOR if of == CLASS else self.called(fn.id, given, node)
    if isinstance(fn, ast.Attribute):
      if isinstance(fn.value, ast.Name) and isinstance(m := self.scope.get(fn.value.id), ModuleType):
        return self.result(getattr(m, fn.attr, None))
      if self.kind(fn.value) in (TENSOR, CLASS): return self.returns.get(fn.attr, OTHER)
      if fn.attr == "__new__": return TENSOR
    return TENSOR if of == CLASS else of if of == ANY else OTHER

  def called(self, name: str, given: list[Any], node: ast.Call) -> Any:
    """What a function gives that goes by one name."""
    if name == "type" and len(given) == 1: return {TENSOR: CLASS, ANY: ANY}.get(given[0], OTHER)
    if name == "super": return CLASS
    if name == "getattr" and isinstance(node.args[1], ast.Constant): self.use(str(node.args[1].value), node, given[0] == TENSOR)
    if name in ("abs", "round", "divmod", "iter", "reversed") and TENSOR in given: self.use(f"__{name}__", node)
    items = tuple([element(g) for g in given])
    if name == "zip": return (items,)
    if name == "enumerate": return ((OTHER, items[0]),)
    if name == "sum" and TENSOR in items: self.use("__add__", node)
    if name in ("tuple", "list", "sorted", "reversed", "iter"): return items
    return either(items) if name in ("next", "max", "min", "sum") else self.result(self.scope.get(name))

  def result(self, fn: Any) -> Any:
    said = fn.__annotations__.get("return") if isinstance(fn, FunctionType) else None
    return annotated(ast.parse(said, mode="eval").body) if isinstance(said, str) else OTHER

  def kind_BinOp(self, node: ast.BinOp) -> Any:
    a, b, name = self.kind(node.left), self.kind(node.right), _BINARY[type(node.op)]
    if TENSOR in (a, b): self.use(f"__{name}__" if a == TENSOR else f"__r{name}__", node)
    lists = [k for k in (a, b) if isinstance(k, tuple)]
    return either((a, b)) if not lists else tuple([k for kinds in lists for k in kinds])
  def kind_UnaryOp(self, node: ast.UnaryOp) -> Any:
    k = self.kind(node.operand)
    if isinstance(node.op, ast.Not): return OTHER
    if k == TENSOR: self.use(f"__{_UNARY[type(node.op)]}__", node)
    return k
  def kind_Compare(self, node: ast.Compare) -> Any:
    kinds, out = [self.kind(node.left), *[self.kind(c) for c in node.comparators]], OTHER
    for op, a, b in zip(node.ops, kinds, kinds[1:]):
      if isinstance(op, (ast.In, ast.NotIn)) and b == TENSOR: self.use("__contains__", node)
      if type(op) in _COMPARE and TENSOR in (a, b):
        self.use(f"__{_COMPARE[type(op)]}__", node)
        out = TENSOR
    return out
  def kind_BoolOp(self, node: ast.BoolOp) -> Any: return either([self.kind(v) for v in node.values])
  def kind_IfExp(self, node: ast.IfExp) -> Any:
    self.kind(node.test)
    return either([self.kind(node.body), self.kind(node.orelse)])
  def kind_Lambda(self, node: ast.Lambda) -> Any:
    self.function(node)
    return OTHER
  def kind_Starred(self, node: ast.Starred) -> Any: return element(self.kind(node.value))
  def kind_Tuple(self, node: Any) -> Any: return tuple([self.kind(e) for e in node.elts])
  kind_List = kind_Tuple
  def kind_NamedExpr(self, node: ast.NamedExpr) -> Any:
    self.bind(node.target, k := self.kind(node.value))
    return k
  def kind_Subscript(self, node: ast.Subscript) -> Any:
    of, at = self.kind(node.value), node.slice.value if isinstance(node.slice, ast.Constant) else None
    self.kind(node.slice)
    if of == TENSOR: self.use("__getitem__", node)
    if isinstance(of, tuple) and isinstance(node.slice, ast.Slice): return of
    return of[at] if isinstance(of, tuple) and isinstance(at, int) and at < len(of) else element(of)
  def comprehension(self, node: Any) -> Any:
    before, self.env = self.env, dict(self.env)
    for g in node.generators:
      self.bind(g.target, self.iterated(g.iter))
      for i in g.ifs: self.kind(i)
    out = tuple([self.kind(getattr(node, part)) for part in ("elt", "key", "value") if hasattr(node, part)])
    self.env = before
    return out
  kind_ListComp = kind_GeneratorExp = kind_SetComp = kind_DictComp = comprehension

  def iterated(self, node: ast.expr) -> Any:
    if (k := self.kind(node)) == TENSOR: self.use("__iter__", node)
    return element(k)

  # ---- statements
  def bind(self, target: ast.expr, kind: Any) -> None:
    if isinstance(target, ast.Name): self.env[target.id] = TENSOR if TENSOR in (kind, self.env.get(target.id)) else kind
    elif isinstance(target, ast.Starred): self.bind(target.value, (element(kind),))
    elif isinstance(target, (ast.Tuple, ast.List)):
      exact = isinstance(kind, tuple) and len(kind) == len(target.elts)
      for i, t in enumerate(target.elts): self.bind(t, kind[i] if exact else element(kind))
    elif isinstance(target, ast.Subscript) and self.kind(target.value) == TENSOR: self.use("__setitem__", target)
    else: self.kind(target)

  def visit_Assign(self, node: ast.Assign) -> None:
    k = self.kind(node.value)
    for t in node.targets: self.bind(t, k)
  def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
    said, k = annotated(node.annotation), self.kind(node.value)
    self.bind(node.target, k if said == ANY and k != OTHER else said)
  def visit_AugAssign(self, node: ast.AugAssign) -> None:
    self.bind(node.target, self.kind_BinOp(ast.copy_location(ast.BinOp(node.target, node.op, node.value), node)))
  def visit_For(self, node: ast.For) -> None:
    self.bind(node.target, self.iterated(node.iter))
    for s in [*node.body, *node.orelse]: self.visit(s)
  def visit_FunctionDef(self, node: ast.FunctionDef) -> None: self.function(node)
  def generic_visit(self, node: ast.AST) -> None:
    for child in ast.iter_child_nodes(node): self.kind(child) if isinstance(child, ast.expr) else self.visit(child)


# ---- the parts

def parts() -> list[type]:
  """The classes that ``Tensor`` is made of, but for ``Base`` and itself."""
  return [c for c in Tensor.__mro__ if issubclass(c, Base) and c not in (Base, Tensor)]


@cache
def classes() -> frozenset[str]: return frozenset(c.__name__ for c in [Base, Tensor, *parts()])


@cache
def returns() -> dict[str, Any]:
  """What methods and properties of tensors give."""
  out = {}
  for c in [Base, *parts()[::-1], Tensor]:
    tree = ast.parse(inspect.getsource(c))
    for n in ast.walk(tree):
      if isinstance(n, ast.FunctionDef): out[n.name] = annotated(n.returns)
    for n in next(n.body for n in tree.body if isinstance(n, ast.ClassDef)):
      if isinstance(n, ast.Assign) and isinstance(n.value, ast.Call):   # exp = member(_unary, ..); __add__, __radd__ = ..
        kind = out.get(ast.unparse(n.value.args[0]).split(".")[-1], TENSOR)
        for t in n.targets: out.update({name.id: kind for name in ast.walk(t) if isinstance(name, ast.Name)})
  return out


def uses(part: type) -> dict[str, Use]:
  """The names that a part uses."""
  module = sys.modules[part.__module__]
  return Reader(inspect.getsource(module), part.__name__, vars(module), returns()).found


def owners(name: str) -> list[type]:
  """The parts that have a name."""
  return [p for p in parts() if name in vars(p) and name not in ("__module__", "__doc__", "__slots__")]
