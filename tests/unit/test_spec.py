"""The verifier: legal programs pass, and every rule has a refusal."""
from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any, Callable

import pytest

from ntgrad.codegen import index as ix
from ntgrad.codegen.ir.dtype import DType, dtypes
from ntgrad.codegen.ir.errors import VerifyError
from ntgrad.codegen.ir.uop import BinaryOps, Ops, TernaryOps, UnaryOps, UOp
from ntgrad.codegen.kernel import Axis, AxisKind, Fold, Kernel, Param, scalar
from ntgrad.codegen.passes.parts import Part, Parts
from ntgrad.codegen.verify.forms import INDEX, LINEAR, verify_form, verify_index, verify_linear
from ntgrad.codegen.verify.graph import GRAPH, verify_graph
from support.linear import INT, Lines, dot

F32, BOOL = dtypes.float32, dtypes.bool
ADD, MUL = BinaryOps.ADD, BinaryOps.MUL


def U(op: Ops, dtype: DType = F32, src: tuple[UOp, ...] = (), arg: Any = None) -> UOp: return UOp(op, dtype, src, arg)


def c(value: Any, dtype: DType = INT) -> UOp: return UOp.const(dtype, value)


# ---- the linear form

Make = Callable[[Lines], Any]
REFUSED: dict[str, tuple[str, Make]] = {}


def refused(sentence: str) -> Callable[[Make], Make]:
  def keep(f: Make) -> Make:
    REFUSED[f.__name__] = (sentence, f)
    return f
  return keep


@refused("reads a UOps.CONST that does not stand before it")
def source_after(p: Lines) -> None: p.add(Ops.ALU, INT, (c(1), c(2)), ADD)


@refused("UOps.INDEX does not belong in a linear program")
def foreign_op(p: Lines) -> None: p.add(Ops.INDEX, INT)


@refused("stands twice (before in line 0)")
def twice(p: Lines) -> None: p.uops += [c(1), c(1)]


@refused("has dtype index; a linear program has int32 or int64")
def index_dtype(p: Lines) -> None: p.const(dtypes.index, 3)


@refused("a dtypes.int constant is a Python int, got 1.5")
def const_kind(p: Lines) -> None: p.add(Ops.CONST, INT, (), 1.5)


@refused("300 is outside dtypes.uchar")
def const_range(p: Lines) -> None: p.add(Ops.CONST, dtypes.uint8, (), 300)


@refused("CONST has no sources")
def const_sources(p: Lines) -> None: p.add(Ops.CONST, INT, (p.const(INT, 1),), 2)


@refused("ALU needs a function")
def alu_function(p: Lines) -> None: p.add(Ops.ALU, INT, (p.const(INT, 1),), "add")


@refused("BinaryOps.ADD takes 2 sources, got 1")
def alu_arity(p: Lines) -> None: p.add(Ops.ALU, INT, (p.const(INT, 1),), ADD)


@refused("the sources of BinaryOps.ADD have one dtype, got dtypes.int and dtypes.float")
def alu_mixed(p: Lines) -> None: p.add(Ops.ALU, INT, (p.const(INT, 1), p.const(F32, 1.0)), ADD)


@refused("BinaryOps.ADD of dtypes.int gives dtypes.int, not dtypes.float")
def alu_result(p: Lines) -> None: p.add(Ops.ALU, F32, (p.const(INT, 1), p.const(INT, 2)), ADD)


@refused("BinaryOps.CMPLT of dtypes.int gives dtypes.bool, not dtypes.int")
def compare_result(p: Lines) -> None: p.add(Ops.ALU, INT, (p.const(INT, 1), p.const(INT, 2)), BinaryOps.CMPLT)


@refused("the condition of WHERE is bool, got dtypes.int")
def where_condition(p: Lines) -> None: p.add(Ops.ALU, INT, (p.const(INT, 1),) * 3, TernaryOps.WHERE)


@refused("UnaryOps.SQRT takes floats, got dtypes.int")
def float_only(p: Lines) -> None: p.alu(UnaryOps.SQRT, p.const(INT, 1))


@refused("BinaryOps.AND takes ints or bool, got dtypes.float")
def bits_only(p: Lines) -> None: p.alu(BinaryOps.AND, p.const(F32, 1.0), p.const(F32, 2.0))


@refused("BinaryOps.SHL takes ints, got dtypes.bool")
def shift_only(p: Lines) -> None: p.alu(BinaryOps.SHL, p.const(BOOL, True), p.const(BOOL, True))


@refused("BinaryOps.THREEFRY takes uint64, got dtypes.int")
def threefry_only(p: Lines) -> None: p.alu(BinaryOps.THREEFRY, p.const(INT, 1), p.const(INT, 2))


@refused("gives 4 elements, a source has 2 (1 or 4 expected)")
def alu_counts(p: Lines) -> None:
  x = p.const(F32, 1.0)
  p.add(Ops.ALU, F32.vec(4), (p.vector(x, x), x), ADD)


@refused("CAST has one source, got 2")
def cast_arity(p: Lines) -> None: p.add(Ops.CAST, F32, (p.const(INT, 1), p.const(INT, 2)))


@refused("CAST keeps the count: dtypes.int.vec(2) to dtypes.float.vec(4)")
def cast_count(p: Lines) -> None: p.cast(p.vector(p.const(INT, 1), p.const(INT, 2)), F32.vec(4))


@refused("BITCAST keeps the item size: dtypes.int has 4 bytes, dtypes.double 8")
def bitcast_size(p: Lines) -> None: p.bitcast(p.const(INT, 1), dtypes.float64)


@refused("the arg of DEFINE_GLOBAL is (slot, name, written)")
def global_arg(p: Lines) -> None: p.add(Ops.DEFINE_GLOBAL, F32, (), ("data0", 0, True))


@refused("a buffer has a scalar dtype, got dtypes.float.vec(4)")
def global_vector(p: Lines) -> None: p.buf(0, F32.vec(4))


@refused("slot 0 is defined twice")
def global_twice(p: Lines) -> None: p.buf(0, F32), p.buf(0, INT)


@refused("the arg of DEFINE_LOCAL is (name, size >= 1, 'local' or 'private')")
def local_arg(p: Lines) -> None: p.local("a", 0, F32)


@refused("a buffer has a scalar dtype")
def local_vector(p: Lines) -> None: p.local("a", 4, F32.vec(2))


@refused("local name a is defined twice")
def local_twice(p: Lines) -> None: p.local("a", 4, F32), p.local("a", 5, F32)


@refused("the arg of DEFINE_ACC is its start value, a Python int, got 0.5")
def acc_start(p: Lines) -> None: p.acc(INT, 0.5)


@refused("the arg of SPECIAL is ('g' or 'l', dimension 0..2, size >= 1 or an index over SIZEs)")
def special_arg(p: Lines) -> None: p.gid(4, 3)


@refused("SPECIAL has a scalar int dtype, got dtypes.float")
def special_dtype(p: Lines) -> None: p.add(Ops.SPECIAL, F32, (), ("g", 0, 4))


@refused("SPECIAL ('g', 0) is defined twice")
def special_twice(p: Lines) -> None: p.gid(4), p.gid(5)


@refused("LOOP has a start and an end, got 1 sources")
def loop_sources(p: Lines) -> None: p.add(Ops.LOOP, INT, (p.const(INT, 0),))


@refused("a LOOP has a scalar int dtype, got dtypes.float")
def loop_dtype(p: Lines) -> None: p.add(Ops.LOOP, F32, (p.const(F32, 0.0), p.const(F32, 1.0)))


@refused("LOOP of dtypes.int and dtypes.long has an index of dtypes.int: one dtype expected")
def loop_mixed(p: Lines) -> None: p.add(Ops.LOOP, INT, (p.const(INT, 0), p.const(dtypes.int64, 1)))


@refused("the LOOP never ends")
def loop_open(p: Lines) -> None: p.loop(0, 4)


@refused("the IF never ends")
def if_open(p: Lines) -> None: p.if_(p.const(BOOL, True))


@refused("ENDLOOP ends a LOOP, its source is UOps.CONST")
def end_of_nothing(p: Lines) -> None: p.end(p.const(INT, 0))


@refused("ENDLOOP ends line 3, but line 4 is the innermost open one")
def crossed_loops(p: Lines) -> None:
  i, _ = p.loop(0, 4), p.loop(0, 5)
  p.end(i)


@refused("ENDLOOP ends line 3, but line 4 is the innermost open one")
def loop_over_if(p: Lines) -> None:
  t, i = p.const(BOOL, True), p.loop(0, 4)
  p.if_(t)
  p.end(i)


@refused("but nothing is open")
def ended_twice(p: Lines) -> None:
  i = p.loop(0, 4)
  p.end(i)
  p.add(Ops.ENDLOOP, F32, (i,))


@refused("the condition of IF is a bool, got dtypes.int")
def if_dtype(p: Lines) -> None: p.if_(p.const(INT, 1))


@refused("BREAK stands directly in a WHILE")
def break_in_if(p: Lines) -> None:
  p.add(Ops.WHILE, F32)
  t = p.const(BOOL, True)
  p.if_(t)
  p.add(Ops.BREAK, F32, (t,))


@refused("the condition of BREAK is a bool, got dtypes.int")
def break_dtype(p: Lines) -> None: p.add(Ops.BREAK, F32, (p.const(INT, 1),))


@refused("ENDIF ends line 1, but line 2 is the innermost open one")
def while_in_if(p: Lines) -> None:
  t = p.if_(p.const(BOOL, True))
  p.add(Ops.WHILE, F32)
  p.endif(t)


@refused("ELSE ends line 1, but line 2 is the innermost open one")
def second_else(p: Lines) -> None:
  t = p.if_(p.const(BOOL, True))
  p.add(Ops.ELSE, F32, (t,)), p.add(Ops.ELSE, BOOL, (t,))


@refused("the arg of LOOP is None or 'flatten', got 'unroll'")
def loop_arg(p: Lines) -> None: p.add(Ops.LOOP, INT, (p.const(INT, 0), p.const(INT, 4)), "unroll")


@refused("BARRIER inside line 0, a WHILE")
def barrier_in_while(p: Lines) -> None:
  p.add(Ops.WHILE, F32)
  p.barrier()


def _summing(p: Lines) -> tuple[UOp, UOp, UOp]:
  acc, one = p.acc(INT, 0), p.const(INT, 1)
  i = p.loop(0, 4)
  return acc, i, p.alu(ADD, acc, one)


@refused("uses line 5 after the end of the LOOP (line 4) that it is defined in")
def value_outlives_loop(p: Lines) -> None:
  acc, i, s = _summing(p)
  p.end(i)
  p.alu(ADD, s, s)


@refused("uses line 4 after the end of the LOOP (line 4)")
def loop_index_outlives_loop(p: Lines) -> None:
  acc, i, s = _summing(p)
  p.end(i)
  p.alu(ADD, i, i)


@refused("after the end of the IF")
def value_outlives_if(p: Lines) -> None:
  x, t = p.const(INT, 1), p.if_(p.const(BOOL, True))
  y = p.alu(ADD, x, x)
  p.endif(t)
  p.alu(ADD, y, x)


@refused("reads the accumulator of line 0 after its loop; line 6, its PHI, is meant")
def accumulator_after_loop(p: Lines) -> None:
  acc, i, s = _summing(p)
  p.phi(acc, s, i)
  p.end(i)
  p.alu(ADD, acc, acc)


@refused("PHI has an accumulator, a value and its loops, got 2 sources")
def phi_sources(p: Lines) -> None:
  acc, i, s = _summing(p)
  p.phi(acc, s)


@refused("PHI assigns a DEFINE_ACC, got UOps.ALU")
def phi_target(p: Lines) -> None:
  acc, i, s = _summing(p)
  p.phi(s, s, i)


@refused("PHI of dtypes.float on an accumulator of dtypes.int")
def phi_dtype(p: Lines) -> None:
  acc, i, s = _summing(p)
  p.add(Ops.PHI, F32, (acc, s, i))


@refused("PHI assigns dtypes.float to an accumulator of dtypes.int")
def phi_value(p: Lines) -> None:
  x = p.const(F32, 1.0)
  acc, i, s = _summing(p)
  p.phi(acc, x, i)


@refused("the sources of PHI after the value are LOOPs, got UOps.ALU")
def phi_loops(p: Lines) -> None:
  acc, i, s = _summing(p)
  p.phi(acc, s, s)


@refused("that is not one of its loops")
def phi_of_outer_loop(p: Lines) -> None:
  acc, i, s = _summing(p)
  p.loop(0, 5)
  p.phi(acc, s, i)


@refused("after the end of the LOOP")
def phi_outside_loop(p: Lines) -> None:
  acc, i, s = _summing(p)
  one = p.const(INT, 1)
  p.end(i)
  p.phi(acc, one, i)


@refused("an accumulator that is defined inside the same loop")
def phi_of_inner_accumulator(p: Lines) -> None:
  i = p.loop(0, 4)
  acc = p.acc(INT, 0)
  p.phi(acc, p.alu(ADD, acc, i), i)


@refused("two PHIs of one parallel assignment set the same accumulator")
def phi_twice(p: Lines) -> None:
  other = p.acc(INT, 1)
  acc, i, s = _summing(p)
  t = p.alu(MUL, s, s)
  p.phi(acc, s, i), p.phi(other, s, i), p.phi(acc, t, i)


@refused("stands between a PHI and its ENDLOOP")
def phi_in_the_middle(p: Lines) -> None:
  acc, i, s = _summing(p)
  p.phi(acc, s, i)
  p.alu(MUL, s, s)


@refused("reads line 2, a UOps.STORE, which has no value")
def value_of_store(p: Lines) -> None:
  b = p.buf(0, INT, True)
  s = p.store(b, 0, p.const(INT, 0))
  p.add(Ops.ALU, INT, (s, s), ADD)


@refused("reads line 0, a buffer, other than by LOAD or STORE")
def value_of_buffer(p: Lines) -> None:
  b = p.buf(0, INT)
  p.alu(ADD, b, b)


@refused("LOAD has 2 to 5 sources, got 1")
def load_sources(p: Lines) -> None: p.add(Ops.LOAD, F32, (p.buf(0, F32),))


@refused("LOAD needs a DEFINE_GLOBAL or DEFINE_LOCAL first, got UOps.CONST")
def load_buffer(p: Lines) -> None: p.add(Ops.LOAD, INT, (p.const(INT, 0), p.const(INT, 1)))


@refused("the index has a scalar int dtype, got dtypes.float")
def load_index(p: Lines) -> None: p.load(p.buf(0, F32), p.const(F32, 0.0))


@refused("LOAD of dtypes.int in a buffer of dtypes.float")
def load_dtype(p: Lines) -> None: p.add(Ops.LOAD, INT, (p.buf(0, F32), p.const(INT, 0)))


@refused("a gate is bool, one or one a lane (4), got dtypes.int")
def gate_dtype(p: Lines) -> None: p.load(p.buf(0, F32), 0, p.const(INT, 0), count=4)


@refused("a gate is bool, one or one a lane (4), got dtypes.bool.vec(2)")
def gate_count(p: Lines) -> None: p.load(p.buf(0, F32), 0, p.vector(p.const(BOOL, True), p.const(BOOL, False)), count=4)


@refused("`other` of a LOAD of dtypes.float is dtypes.int")
def other_dtype(p: Lines) -> None: p.load(p.buf(0, F32), 0, p.const(BOOL, True), p.const(INT, 0))


@refused("STORE of dtypes.int in a buffer of dtypes.float")
def store_dtype(p: Lines) -> None: p.store(p.buf(0, F32, True), 0, p.const(INT, 0))


@refused("STORE into 'data0', which is declared as not written")
def store_read_only(p: Lines) -> None: p.store(p.buf(0, INT), 0, p.const(INT, 0))


@refused("a gate is bool")
def store_gate(p: Lines) -> None: p.store(p.buf(0, INT, True), 0, p.const(INT, 0), p.const(INT, 1))


@refused("the arg of STORE is one of None, 'nt', 'tma', got 'x'")
def store_arg(p: Lines) -> None: p.add(Ops.STORE, BOOL, (p.buf(0, INT, True), p.const(INT, 0), p.const(INT, 0)), "x")


@refused("VECTORIZE to dtypes.float.vec(4) of 1 sources")
def vectorize_count(p: Lines) -> None: p.add(Ops.VECTORIZE, F32.vec(4), (p.const(F32, 1.0),))


@refused("VECTORIZE to dtypes.float.vec(2) of dtypes.float and dtypes.int")
def vectorize_dtype(p: Lines) -> None: p.add(Ops.VECTORIZE, F32.vec(2), (p.const(F32, 1.0), p.const(INT, 1)))


@refused("GEP of lane 2 of a vector of 2")
def gep_lane(p: Lines) -> None: p.gep(p.vector(p.const(F32, 1.0), p.const(F32, 2.0)), 2)


@refused("GEP of dtypes.float.vec(2) gives dtypes.float, not dtypes.int")
def gep_dtype(p: Lines) -> None: p.add(Ops.GEP, INT, (p.vector(p.const(F32, 1.0), p.const(F32, 2.0)),), 0)


@refused("whose condition differs between work-items (it depends on line 0)")
def divergent_barrier(p: Lines) -> None:
  p.if_(p.alu(BinaryOps.CMPLT, p.lid(4), 2))
  p.barrier()


@pytest.mark.parametrize("case", REFUSED)
def test_linear_refusal(case: str) -> None:
  sentence, make = REFUSED[case]
  p = Lines()
  make(p)
  with pytest.raises(VerifyError) as e: verify_linear(p.uops, "k")
  first, *rest = str(e.value).split("\n")
  assert sentence in first and first.startswith("kernel 'k'")
  assert len(rest) == 1 and "UOps." in rest[0]  # the line of the listing


def test_linear_accepts() -> None:
  verify_linear(dot().uops)
  p = Lines()  # nested loops, one accumulator; an inner accumulator; two loops after one another; a value from an outer loop
  out = p.buf(0, INT, True)
  acc = p.acc(INT, 0)
  i = p.loop(0, 3)
  inner = p.acc(INT, 1, i)
  j = p.loop(0, i)
  x, y = p.alu(ADD, acc, p.alu(MUL, i, j)), p.alu(MUL, inner, j)
  a, b = p.phi(acc, x, i, j), p.phi(inner, y, j)
  p.end(j)
  p.store(out, i, p.alu(ADD, a, b))
  e = p.end(i)
  k = p.add(Ops.LOOP, INT, (*i.src, e))  # same bounds, another loop
  t = p.if_(p.alu(BinaryOps.CMPLT, k, 2))
  p.store(out, k, a)
  p.endif(t)
  p.barrier()
  p.end(k)
  verify_linear(p.uops)


# ---- the index form

def _kernel(**changes: Any) -> Kernel:
  """out[i] = sum over k of a[i, k]"""
  i, k = ix.rng(0, 3), ix.rng(1, 4)
  out, a = Param(0, (3,), F32, True), Param(1, (3, 4), F32, False)
  part: dict[str, Any] = {
    "i": i,
    "k": k,
    "out": out.uop,
    "a": a.uop,
    "at": U(Ops.INDEX, dtypes.index, (i,)),
    "src": None,
    "arg": (ADD, (1,)),
    "gate": (),
    "value": None,
    "how": None,
  }
  part.update(changes)
  x = UOp(Ops.LOAD, F32, (part["a"], part["src"] or U(Ops.INDEX, dtypes.index, (part["i"], part["k"]))))
  value = part["value"] or UOp(Ops.REDUCE, F32, (x,), part["arg"])
  store = U(Ops.STORE, BOOL, (part["out"], part["at"], value, *part["gate"]), part["how"])
  return Kernel((out, a), (Axis(0, 3, AxisKind.GRID), Axis(1, 4, AxisKind.LOOP)), (store,))


def test_index_accepts() -> None:
  kernel = _kernel()
  verify_index(kernel)
  load = kernel.body[0].src[2].src[0]
  verify_index(_kernel(value=load, how=("add", (1,))))  # a sum over k by a scattering STORE, k in order


def _zero() -> UOp: return c(0.0, F32)


@pytest.mark.parametrize("sentence, changes", [
  ("RANGE over axis 7, which the kernel does not have (axes: 0, 1)", lambda: {"k": ix.rng(7, 4)}),
  ("RANGE of 5 over axis 1, whose size is 4", lambda: {"k": ix.rng(1, 5)}),
  ("the arg of RANGE is (axis id, size >= 1)", lambda: {"k": U(Ops.RANGE, dtypes.index, (), (1, 0))}),
  ("REDUCE over axis 9, which the kernel does not have", lambda: {"arg": (ADD, (1, 9))}),
  ("REDUCE binds an axis twice: (1, 1)", lambda: {"arg": (ADD, (1, 1))}),
  ("no combiner BinaryOps.SUB", lambda: {"arg": (BinaryOps.SUB, (1,))}),
  ("a reduction by AND takes ints or bool, got dtypes.float", lambda: {"arg": (BinaryOps.AND, (1,))}),
  ("the arg of REDUCE is (combiner, axis ids)", lambda: {"arg": ADD}),
  ("REDUCE has one source, got 2", lambda: {"value": U(Ops.REDUCE, F32, (_zero(), _zero()), (ADD, (1,)))}),
  ("REDUCE of dtypes.float gives dtypes.int: one dtype expected", lambda: {"value": U(Ops.REDUCE, INT, (_zero(),), (ADD, (1,)))}),
  ("an INDEX of 1 dimensions into param 'data1' of shape (3, 4)", lambda: {"src": U(Ops.INDEX, dtypes.index, (ix.rng(1, 4),))}),
  ("an expression of an INDEX has a scalar int dtype, got dtypes.float", lambda: {"at": U(Ops.INDEX, dtypes.index, (_zero(),))}),
  ("a LOAD or STORE has an INDEX", lambda: {"at": ix.const(0)}),
  ("LOAD of 'data5', which the kernel does not have", lambda: {"a": Param(5, (3, 4), F32, False).uop}),
  ("STORE of a value that depends on axis 1 of 4 to a place that does not", lambda: {"arg": (ADD, ())}),
  ("a gate is bool", lambda: {"gate": (ix.const(1),)}),
  ("the arg of STORE is one of None, 'nt', 'tma', ('add' or 'set', axis ids)", lambda: {"how": ("mul", (1,))}),
  ("STORE into 'data0', which is declared as not written", lambda: {"out": Param(0, (3,), F32, False).uop}),
  ("UOps.LOOP does not belong in the index form", lambda: {"value": U(Ops.LOOP, F32)}),
])
def test_index_refusal(sentence: str, changes: Callable[[], dict[str, Any]]) -> None:
  kernel = _kernel(**changes())
  with pytest.raises(VerifyError) as e: verify_index(kernel, "k")
  assert sentence in str(e.value).split("\n")[0]


def test_no_element_is_added_twice() -> None:
  """An axis whose last vector starts earlier is for STOREs that may be made again."""
  i, at = ix.rng(0, 3), ix.rng(1, 8)
  out, a = Param(0, (20,), F32, True), Param(1, (20,), F32, False)
  place = U(Ops.INDEX, dtypes.index, (ix.add(ix.least(ix.mul(i, 8), 12), at),))
  axes = Axis(0, 3, AxisKind.GRID), Axis(1, 8, AxisKind.LANE, again=4)
  value = UOp(Ops.LOAD, F32, (a.uop, place))
  plain = U(Ops.STORE, BOOL, (out.uop, place, value))
  verify_index(Kernel((out, a), axes, (plain,)))
  own = U(Ops.STORE, BOOL, (out.uop, place, UOp(Ops.LOAD, F32, (out.uop, place))))
  for bad in (U(Ops.STORE, BOOL, (out.uop, place, value), ("add", ())), own, U(Ops.ATOMIC, BOOL, (out.uop, place, value), "add")):
    with pytest.raises(VerifyError, match="has 4 elements twice, and what is written depends on what was there"):
      verify_index(Kernel((out, a), axes, (bad,)))


def _array(dtype: Any = F32) -> UOp: return U(Ops.DEFINE_LOCAL, dtype, (), ("v", (4,), "private"))


@pytest.mark.parametrize("sentence, change", [
  ("FOLD reads 1 variables and fills 1, got 1 sources", {"src": (_array(),)}),
  ("FOLD of dtypes.int combines dtypes.float and dtypes.float to dtypes.float", {"src": (_array(dtypes.int32), _array())}),
  ("FOLD along dimension 1 of (4,)", {"axis": 1}),
  ("FOLD reads 1 variables and fills 2", {"asked": (0, 0)}),
])
def test_fold_refusal(sentence: str, change: dict[str, Any]) -> None:
  a, b = (scalar(n, F32) for n in "ab")
  src = change.pop("src", (_array(), _array()))
  fold = Fold((a,), (b,), (UOp.alu(ADD, a, b),), (4,), 0, (0,))
  verify_index(Kernel((), (), (U(Ops.FOLD, BOOL, (_array(), _array()), fold),)))
  with pytest.raises(VerifyError, match=re.escape(sentence)):
    verify_index(Kernel((), (), (U(Ops.FOLD, BOOL, src, fold._replace(**change)),)))


@pytest.mark.parametrize("how, more", [("cas", ()), ("add", (UOp.const(F32, 0),))])
def test_an_atomic_gives_what_was_there_to_a_variable(how: str, more: tuple[UOp, ...]) -> None:
  p, old = Param(0, (3,), F32, True), scalar("old", F32)
  src = p.uop, U(Ops.INDEX, dtypes.index, (ix.ZERO,)), UOp.const(F32, 1), ix.TRUE, *old.src, *more
  with pytest.raises(VerifyError, match=f"ATOMIC {how} gives dtypes.float to a variable of that dtype, at an index"):
    verify_index(Kernel((p,), (), (U(Ops.ATOMIC, F32, src, how),)))
  other = UOp(Ops.ATOMIC, F32, src[:6] + (UOp.const(F32, 0),) * (how == "cas"), how)
  verify_index(Kernel((p,), (), (other,)))


def test_index_roots_are_stores() -> None:
  with pytest.raises(VerifyError, match="the body of a kernel is statements, got UOps.CONST"):
    verify_index(Kernel((), (), (_zero(),)))


def test_a_param_is_the_kernels() -> None:
  """The same slot under another node is another buffer."""
  with pytest.raises(VerifyError, match="LOAD of 'data1', which the kernel does not have"):
    verify_index(_kernel(a=Param(1, (3, 4), F32, True).uop), "k")


# ---- expanded parts

def _lanes(*values: UOp) -> UOp: return U(Ops.VECTORIZE, F32.vec(2), values)


@pytest.mark.parametrize("sentence, make", [
  ("the arg of RANGE is (axis id, size >= 1)", lambda: U(Ops.CAST, F32, (U(Ops.RANGE, dtypes.index, (), (0, 0)),))),
  ("GEP of lane 2 of a vector of 2", lambda: U(Ops.GEP, F32, (_lanes(_zero(), _zero()),), 2)),
  ("VECTORIZE to dtypes.float.vec(2) of 1 sources", lambda: U(Ops.GEP, F32, (_lanes(_zero()),), 0)),
  ("REDUCE has a source for each copy of its axes, got 0", lambda: U(Ops.REDUCE, F32, (), (ADD, (1,)))),
  ("REDUCE of dtypes.int gives dtypes.int, not dtypes.float", lambda: U(Ops.REDUCE, F32, (_zero(), c(1)), (ADD, (1,)))),
  ("an expanded CACHE_READ has an index, a local array and the STOREs that fill it",
    lambda: U(Ops.CACHE_READ, F32, (_zero(),), (1,))),
  ("UOps.INDEX does not belong in the expanded form", lambda: U(Ops.CAST, F32, (U(Ops.INDEX, dtypes.index),))),
])
def test_expanded_refusal(sentence: str, make: Callable[[], UOp]) -> None:
  kernel = _kernel()
  root = U(Ops.STORE, BOOL, (kernel.params[0].uop, ix.const(0), make()))
  with pytest.raises(VerifyError) as e: verify_form("expanded", Parts(kernel, (Part(kernel, (root,)),)), "k")
  assert sentence in str(e.value).split("\n")[0]


def test_nothing_reads_an_effect() -> None:
  kernel, out = _kernel(), Param(0, (3,), BOOL, True).uop
  effect = U(Ops.STORE, BOOL, (out, ix.const(0), c(True, BOOL)))
  root = U(Ops.STORE, BOOL, (out, ix.const(1), effect))
  with pytest.raises(VerifyError, match="a UOps.STORE is a root, something reads this one"):
    verify_form("expanded", Parts(kernel, (Part(kernel, (root,)),)))


# ---- the tensor graph

def buffer(*shape: int, dtype: DType = F32) -> UOp:
  return U(Ops.BUFFER, dtype, (), FakeBuffer(shape=shape, dtype=dtype, device="NUMPY"))


class FakeBuffer(SimpleNamespace):
  __hash__ = object.__hash__  # stands in for a Buffer


def test_graph_accepts() -> None:
  a, b = buffer(2, 3), buffer(2, 3)
  s = U(Ops.REDUCE_AXIS, F32, (UOp.alu(ADD, a, b),), (ADD, (1,)))
  t = U(Ops.TILE, F32, (a,), ((1, 1, 1), (2, 1, 1)))
  u = U(Ops.UNTILE, F32, (t,), ((2, 3), ((1, 1, 1), (2, 1, 1))))
  g = U(Ops.GATHER, F32, (a, U(Ops.IOTA, INT, (), 2)))
  m = U(Ops.PAD, F32, (U(Ops.FLIP, F32, (U(Ops.PERMUTE, F32, (a,), (1, 0)),), (0,)),), ((0, 1), (2, 0)))
  v = U(Ops.SHRINK, F32, (a,), ((0, 2), (1, 2)))
  ones = U(Ops.EXPAND, F32, (U(Ops.RESHAPE, F32, (c(1.0, F32),), (1, 1)),), (2, 1))
  verify_graph(
    [
      s,
      u,
      g,
      m,
      U(Ops.CAT, F32, (a, b), 1),
      U(Ops.ASSIGN, F32, (v, ones)),
      U(Ops.SCATTER, F32, (a, U(Ops.IOTA, INT, (), 2), b), "add"),
      U(Ops.CONTIGUOUS, F32, (a,)),
      U(Ops.COPY, F32, (a,), "CPU"),
    ]
  )


@pytest.mark.parametrize(
  "sentence, make",
  [
    ("UOps.LOOP does not belong in the tensor graph", lambda a: U(Ops.LOOP, INT)),
    ("the tensor graph has scalar dtypes", lambda a: U(Ops.CONST, F32.vec(2), (), 1.0)),
    ("the sources of BinaryOps.ADD have one shape, got (2, 3) and (3, 2)", lambda a: UOp.alu(ADD, a, buffer(3, 2))),
    ("the sources of BinaryOps.ADD have one dtype", lambda a: UOp.alu(ADD, a, buffer(2, 3, dtype=INT))),
    ("RESHAPE (4,) does not fit shape (2, 3)", lambda a: U(Ops.RESHAPE, F32, (a,), (4,))),
    ("PERMUTE (0, 0) does not fit", lambda a: U(Ops.PERMUTE, F32, (a,), (0, 0))),
    ("EXPAND (4, 3) does not fit", lambda a: U(Ops.EXPAND, F32, (a,), (4, 3))),
    ("PAD ((0, -1), (0, 0)) does not fit", lambda a: U(Ops.PAD, F32, (a,), ((0, -1), (0, 0)))),
    ("SHRINK ((0, 3), (0, 3)) does not fit", lambda a: U(Ops.SHRINK, F32, (a,), ((0, 3), (0, 3)))),
    ("FLIP (2,) does not fit", lambda a: U(Ops.FLIP, F32, (a,), (2,))),
    ("TILE ((3, 1, 1), (1, 1, 1)) does not fit", lambda a: U(Ops.TILE, F32, (a,), ((3, 1, 1), (1, 1, 1)))),
    (
      "UNTILE ((2, 3), ((1, 1, 1), (1, 1, 1))) does not fit",
      lambda a: U(Ops.UNTILE, F32, (a,), ((2, 3), ((1, 1, 1), (1, 1, 1)))),
    ),
    ("FLIP of dtypes.float gives dtypes.int: one dtype expected", lambda a: U(Ops.FLIP, INT, (a,), (0,))),
    ("FLIP has one source, got 2", lambda a: U(Ops.FLIP, F32, (a, a), (0,))),
    ("REDUCE_AXIS over axes (2,) of shape (2, 3)", lambda a: U(Ops.REDUCE_AXIS, F32, (a,), (ADD, (2,)))),
    (
      "REDUCE_AXIS of dtypes.float gives dtypes.double: one dtype expected",
      lambda a: U(Ops.REDUCE_AXIS, dtypes.float64, (a,), (ADD, (1,))),
    ),
    ("SCAN_AXIS along axis 2, reverse False, of shape (2, 3)", lambda a: U(Ops.SCAN_AXIS, F32, (a,), (ADD, 2, False))),
    ("SCAN_AXIS starts anew after 0 elements", lambda a: U(Ops.SCAN_AXIS, F32, (a,), (ADD, 1, False, 0))),
    ("SORT_AXIS sorts unsigned ints, got dtypes.float", lambda a: U(Ops.SORT_AXIS, F32, (a,), (1, 0, 32, 0))),
    (
      "SORT_AXIS along axis 1, the first 4, of shape (2, 3)",
      lambda a: U(Ops.SORT_AXIS, dtypes.uint32, (U(Ops.CAST, dtypes.uint32, (a,)),), (1, 0, 32, 4)),
    ),
    (
      "SORT_AXIS by bits 0 to 33 of dtypes.uint",
      lambda a: U(Ops.SORT_AXIS, dtypes.uint32, (U(Ops.CAST, dtypes.uint32, (a,)),), (1, 0, 33, 0)),
    ),
    ("no combiner BinaryOps.POW", lambda a: U(Ops.SCAN_AXIS, F32, (a,), (BinaryOps.POW, 1, False))),
    ("no combiner BinaryOps.POW", lambda a: U(Ops.REDUCE_AXIS, F32, (a,), (BinaryOps.POW, (1,)))),
    ("GATHER has a base and an index for each of its first dimensions, got 1", lambda a: U(Ops.GATHER, F32, (a,))),
    ("the index of GATHER has a scalar int dtype, got dtypes.float", lambda a: U(Ops.GATHER, F32, (a, a))),
    (
      "GATHER by 1 indices needs a base of as many dimensions, got 0",
      lambda a: U(Ops.GATHER, F32, (buffer(), U(Ops.IOTA, INT, (), 2))),
    ),
    ("GATHER of dtypes.float gives dtypes.int: one dtype expected", lambda a: U(Ops.GATHER, INT, (a, U(Ops.IOTA, INT, (), 2)))),
    ("SCATTER has a base, indices and a value, got 2", lambda a: U(Ops.SCATTER, F32, (a, U(Ops.IOTA, INT, (), 2)), "add")),
    (
      "the indices of GATHER have one shape",
      lambda a: U(Ops.GATHER, F32, (a, U(Ops.IOTA, INT, (), 2), U(Ops.IOTA, INT, (), 3))),
    ),
    ("the arg of SCATTER is 'set' or 'add', got None", lambda a: U(Ops.SCATTER, F32, (a, U(Ops.IOTA, INT, (), 2), a))),
    ("the index of SCATTER has a scalar int dtype", lambda a: U(Ops.SCATTER, F32, (a, buffer(2), a), "add")),
    (
      "SCATTER of a value of shape (2, 3); (4, 3) expected",
      lambda a: U(Ops.SCATTER, F32, (a, U(Ops.IOTA, INT, (), 4), a), "add"),
    ),
    (
      "SCATTER of dtypes.float and dtypes.int gives dtypes.float",
      lambda a: U(Ops.SCATTER, F32, (a, U(Ops.IOTA, INT, (), 2), buffer(2, 3, dtype=INT)), "add"),
    ),
    ("CAT of nothing", lambda a: U(Ops.CAT, F32, (), 0)),
    ("CAT along axis 2 of shape (2, 3)", lambda a: U(Ops.CAT, F32, (a,), 2)),
    ("CAT along axis 0 of shapes (2, 3) and (2, 4)", lambda a: U(Ops.CAT, F32, (a, buffer(2, 4)), 0)),
    ("CAT of dtypes.float and dtypes.int gives dtypes.float", lambda a: U(Ops.CAT, F32, (a, buffer(2, 3, dtype=INT)), 0)),
    ("ASSIGN has a target and a value, got 1", lambda a: U(Ops.ASSIGN, F32, (a,))),
    ("ASSIGN to a BUFFER or a view of one, got a view of UOps.ALU", lambda a: U(Ops.ASSIGN, F32, (UOp.alu(ADD, a, a), a))),
    ("ASSIGN of a value of shape (3, 2); (2, 3) expected", lambda a: U(Ops.ASSIGN, F32, (a, buffer(3, 2)))),
    ("ASSIGN of dtypes.float and dtypes.int gives dtypes.float", lambda a: U(Ops.ASSIGN, F32, (a, buffer(2, 3, dtype=INT)))),
    ("CONTIGUOUS of dtypes.float gives dtypes.int: one dtype expected", lambda a: U(Ops.CONTIGUOUS, INT, (a,))),
    ("DETACH has one source, got 0", lambda a: U(Ops.DETACH, F32)),
    ("SLOPED of dtypes.float and dtypes.int gives", lambda a: U(Ops.SLOPED, F32, (a, buffer(2, 3, dtype=INT)), "atan")),
    ("the arg of BUFFER is a Buffer, got 3", lambda a: U(Ops.BUFFER, F32, (), 3)),
    ("a BUFFER node of dtypes.int on a Buffer of dtypes.float", lambda a: U(Ops.BUFFER, INT, (), a.arg)),
    ("IOTA has a scalar int dtype, got dtypes.float", lambda a: U(Ops.IOTA, F32, (), 3)),
    ("the arg of IOTA is a size >= 0, got -1", lambda a: U(Ops.IOTA, INT, (), -1)),
    ("IOTA has no sources, got 1", lambda a: U(Ops.IOTA, INT, (a,), 3)),
    ("BITCAST keeps the item size", lambda a: U(Ops.BITCAST, dtypes.int8, (a,))),
    (
      "UPDATE of a value of shape (2, 3); (1, 3) expected",
      lambda a: U(Ops.UPDATE, F32, (a, a), ((Ops.SHRINK, ((0, 1), (0, 3))),)),
    ),
    ("UPDATE by UOps.PAD", lambda a: U(Ops.UPDATE, F32, (a, a), ((Ops.PAD, ((0, 1), (0, 0))),))),
    ("the index of UPDATE has a scalar int dtype", lambda a: U(Ops.UPDATE, F32, (a, a, a), ())),
    ("AFTER comes after an ASSIGN, SCATTER or LAUNCH, got UOps.BUFFER", lambda a: U(Ops.AFTER, F32, (a, a))),
  ],
)
def test_graph_refusal(sentence: str, make: Callable[[UOp], UOp]) -> None:
  with pytest.raises(VerifyError) as e: verify_graph([make(buffer(2, 3))])
  first, line = str(e.value).split("\n")
  assert sentence in first and first.startswith("tensor graph: ") and "UOps." in line


def test_every_op_has_a_rule_somewhere() -> None:
  assert set(LINEAR) | set(INDEX) | set(GRAPH) == set(Ops)
