"""How much code there is: what is added is named here, with its lines and tokens, so that growth is a decision."""
from __future__ import annotations

import ast

from ntgrad.utils.command.code import counts, tokens

LINES, TOKENS = 61_100, 618_600   # when this was written, of codegen, backends and ntgrad without stubs
ADDED: dict[str, tuple[int, int]] = {   # since then: what, lines, tokens
  "what is alive is kept; one walk over a graph (engine/keeping.py)": (330, 4_300),
  "gradients, optimizers' steps and methods by recipes, made when a plan is (graph/recipes.py)": (600, 9_500),
  "plans that are one call": (160, 2_000),
  "recurrent layers in few kernels, packed sequences": (450, 5_400),
  "print as PyTorch's": (105, 1_400),
  "copies that make conditions on remainders known (codegen/choose/residues.py)": (115, 1_500),
  "two tiers; whole kernels by workers (backends/opencl/tiers.py, engine/compile.py)": (480, 6_300),
  "kernels that fill memory share programs (engine/shared_programs.py)": (160, 2_600),
  "the second size before it comes (engine/other_sizes.py)": (410, 5_400),
  "lowering in two thirds of the time": (90, 900),
  "profiles that explain, observers, origins by use, paths of Modules (engine/profiling, nn/paths.py)": (1_060, 14_500),
  "one command; progress on one line (command, backends/progress.py)": (390, 5_100),
  "the first NaN, check, reduce (engine/nan_checks.py, command/check.py, command/reduce.py)": (690, 9_300),
  "tl.device_print, breakpoint(), races in the kernel's words (tile/breakpoints.py, tile/races.py)": (320, 3_900),
  "reductions and scans by any function, old values of atomics, batches in tl.dot (tile/combining.py)": (450, 5_000),
  "assignments to parts of blocks, jumps, grids of their own, races that are refused, libraries that are called": (510, 5_900),
  "gradients of applications by rule (tile/derived_gradient.py, tensor_code.py, pure_stores.py)": (720, 7_000),
  "further names of tinygrad, uint8 images, negative padding": (175, 1_900),
  "hooks, weight norm and parametrizations, antialias, options of DataLoader (nn/hooks.py, nn/utils)": (880, 7_000),
  "heads of files that were parts of longer ones (optim/flat.py, optim/groups.py, tensor/patterns.py)": (50, 300),
  "mixed precision, rounding to tf32, master weights (nn/amp.py, tensor/autocasting.py, ir/rounding.py)": (420, 3_500),
  "convolutions beside GroupNorm, products of tf32 on GPUs (schedule/round_trips.py, layout.py, prepare.py)": (180, 2_100),
  "results of searches kept on Ctrl-C, for several calls, exported (engine/search_results.py); parts by place (tile/assigned.py)":
    (380, 4_600),
  "several processes: collectives, data parallel, checkpoints, launch (ntgrad/distributed, nn/parallel.py)": (2_500, 24_000),
  "gradients that lie as an optimizer has them, optimizers that share parameters (optim/flat.py)": (90, 1_050),
  "the cache's limit for several writers at once; what ranks that failed have not done": (55, 400),
  "other libraries' work in CUDA graphs; an optimizer in parts by pieces (backends/cuda/graph.py, nn/parallel/sharded.py)":
    (180, 2_300),
  "reductions that need each other in one pass (schedule/chains.py, exchanged_sums.py, passes/one_pass*.py, matrix_units.py)":
    (1_480, 21_500),
  "phases of a profile that are noted first and added up later, copies for check_nan in one piece of memory": (75, 900),
  "masks in branches, the order of programs: for the tile language too (passes/masks.py, longest_first.py)": (115, 1_800),
  "machine code from the disk cache that PoCL does not see (opencl/binaries.py)": (40, 500),
  "advice of a profile by what is made anew, read, copied and kept in each step, and by kernels' dtypes and bytes": (190, 2_100),
  "few rows of a long index, numbers of graphs on several devices, names of early PyTorch, slopes of libdevice's functions":
    (65, 900),
  "functions of dicts in torch.func; plain tensors, writes without a gradient and options set later, as PyTorch has them":
    (45, 600),
  "counts that begin as constants; on GPUs rows with a gap, warps of long sorts, blocks with a long epilogue": (65, 900),
  "which rank of a job ended first": (20, 200),
  "optimizers that are written as for PyTorch, with a step of their own (optim/by_hand.py)": (165, 1_750),
  "what was said twice, or stood in a function of its own and was used once": (-984, -7_370),
}
SLACK = 1.005   # for what is mended


def test_size() -> None:
  found = counts()
  assert set(found) == {"codegen", "backends", "ntgrad"}
  lines, words = (sum(n[i] for n in found.values()) for i in (1, 0))
  most = [SLACK * (base + sum(n[i] for n in ADDED.values())) for i, base in enumerate((LINES, TOKENS))]
  said = f"{lines:,} lines and {words:,} tokens: make it shorter, or name in ADDED what came"
  assert lines <= most[0] and words <= most[1], said


def test_tokens_are_without_layout_comments_and_docstrings() -> None:
  assert tokens('"""A module."""\n# a comment\ndef f(x):\n  """A function."""\n  return (\n    x + 1\n  )\n') == 12
  assert tokens("") == 0 and ast.parse("") is not None
