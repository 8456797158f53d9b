"""What a kernel is: parameters, axes and a body in index form. Beside it: arrangements, what accesses do along axes, blocks."""
from .kernel import (
  EFFECTS as EFFECTS,
  REGIONS as REGIONS,
  Around as Around,
  Axis as Axis,
  AxisKind as AxisKind,
  Kernel as Kernel,
  LocalVariable as LocalVariable,
  Param as Param,
  Shape as Shape,
  inner as inner,
  is_variable as is_variable,
  reads_its_place as reads_its_place,
  structure_text as structure_text,
  volume as volume,
  walk_statements as walk_statements,
)
