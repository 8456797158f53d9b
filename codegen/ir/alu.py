"""Constructors of ALU nodes of the index form and the linear form: ``add(x, y)``, ``less(x, y)``. They put nothing in canonical
form: indices are made by ``index/algebra.py``."""
from functools import partial

from .dtype import dtypes
from .uop import BinaryOps, UnaryOps, UOp

add, mul, least_of, most_of, shift_left, shift_right = [partial(UOp.alu, fn) for fn in (
  BinaryOps.ADD, BinaryOps.MUL, BinaryOps.MIN, BinaryOps.MAX, BinaryOps.SHL, BinaryOps.SHR)]
and_, or_, not_, less, at_most, equal, differ = [partial(UOp.alu, fn) for fn in (
  BinaryOps.AND, BinaryOps.OR, UnaryOps.NOT, BinaryOps.CMPLT, BinaryOps.CMPLE, BinaryOps.CMPEQ, BinaryOps.CMPNE)]


def int_const(n: int) -> UOp: return UOp.const(dtypes.int32, n)
