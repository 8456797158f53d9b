"""Writes docs/names/pytorch.txt: the public names of an installed PyTorch, with the parameters of what can be called.

    python docs/names/listed.py

A line is ``name(parameters)``; what comes first in a call (the tensor) is left out, and what only some overloads have
stands behind ``|``. ``tables.py`` compares the parameters with those here.
"""
from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import torch.nn.utils.parametrizations
import torch.nn.utils.parametrize
import torch.nn.utils.rnn

CUDA = ("amp CUDAGraph Event Stream current_device current_stream device device_count empty_cache get_device_capability "
        "get_device_name get_device_properties graph is_available is_bf16_supported is_initialized make_graphed_callables "
        "manual_seed manual_seed_all max_memory_allocated mem_get_info memory_allocated memory_reserved memory_stats "
        "memory_summary reset_peak_memory_stats seed set_device stream synchronize utilization")
# what scripts use of large modules
SOME = {
  "autograd.": (torch.autograd, "Function backward grad gradcheck detect_anomaly set_detect_anomaly no_grad enable_grad "
                "inference_mode set_grad_enabled"),
  "autograd.functional.": (torch.autograd.functional, "hessian hvp jacobian jvp vhp vjp"),
  "func.": (torch.func, "functional_call functionalize grad grad_and_value hessian jacfwd jacrev jvp linearize "
            "stack_module_state vjp vmap"),
  "cuda.": (torch.cuda, CUDA), "amp.": (torch.amp, "GradScaler autocast"),
  "jit.": (torch.jit, "load save script trace"), "profiler.": (torch.profiler, "profile record_function schedule"),
  "backends.cudnn.": (torch.backends.cudnn, "allow_tf32 benchmark deterministic enabled is_available version"),
  "backends.cuda.": (torch.backends.cuda, "enable_flash_sdp enable_math_sdp enable_mem_efficient_sdp is_built matmul"),
  "backends.mps.": (torch.backends.mps, "is_available is_built"),
  "nn.attention.": (torch.nn.attention, "SDPBackend sdpa_kernel"), "hub.": (torch.hub, "load"), "onnx.": (torch.onnx, "export"),
  "utils.checkpoint.": (torch.utils.checkpoint, "checkpoint checkpoint_sequential"),
  "utils.dlpack.": (torch.utils.dlpack, "from_dlpack to_dlpack"),
  "optim.swa_utils.": (torch.optim.swa_utils, "AveragedModel SWALR update_bn"),
  "nn.utils.rnn.": (torch.nn.utils.rnn, "PackedSequence pack_padded_sequence pack_sequence pad_packed_sequence pad_sequence "
                    "unpack_sequence unpad_sequence"),
  "nn.utils.parametrizations.": (torch.nn.utils.parametrizations, "orthogonal spectral_norm weight_norm"),
  "nn.utils.parametrize.": (torch.nn.utils.parametrize, "ParametrizationList cached is_parametrized register_parametrization "
                            "remove_parametrizations"), "utils.hooks.": (torch.utils.hooks, "RemovableHandle"),
  "nn.utils.stateless.": (torch.nn.utils.stateless, "functional_call"),
  "optim.Optimizer.": (torch.optim.Optimizer, "add_param_group load_state_dict param_groups state state_dict step zero_grad")}
TYPES = ("Tensor Generator Size device dtype finfo iinfo no_grad enable_grad inference_mode set_grad_enabled autocast GradScaler "
         "e pi nan inf newaxis float16 float32 float64 bfloat16 half float double int8 int16 int32 int64 uint8 uint16 uint32 "
         "uint64 short int long bool float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu complex64 "
         "complex128 cfloat cdouble qint8 quint8 qint32 memory_format channels_last channels_last_3d contiguous_format "
         "preserve_format strided sparse_coo "
         "default_generator FloatTensor DoubleTensor HalfTensor BFloat16Tensor IntTensor LongTensor BoolTensor ByteTensor "
         "vmap export random")


def public(m: Any) -> list[str]: return [n for n in dir(m) if n[0] != "_"]
def functions(m: Any) -> list[str]:
  return [n for n in public(m) if callable(getattr(m, n)) and not isinstance(getattr(m, n), type)]


def of(prefix: str) -> list[str]:
  """The names that are listed now: what was left out once stays out."""
  rest = [n.removeprefix(prefix) for n in OLD if n.startswith(prefix)]
  return [n for n in rest if "." not in n]


OLD = [line.split("(")[0] for line in (Path(__file__).parent / "pytorch.txt").read_text().split("\n") if line]


def schemas(name: str) -> list[list[Any]]:
  """The arguments of each overload of an operator, the one with the most that go by place first."""
  try: found = torch._C._jit_get_schemas_for_operator(f"aten::{name}")
  except RuntimeError: return []
  out = [s.arguments for s in found if not any(a.is_out for a in s.arguments) and s.arguments
         and not {"Dimname", "str[]", "List[str]", "List[Optional[str]]"} & {str(a.type) for a in s.arguments}]
  tensors = [arguments for arguments in out if "Tensor" in str(arguments[0].type)]
  return sorted(tensors or out, key=lambda s: (sum(not a.kwarg_only for a in s), len(s)), reverse=True)


def parameters(name: str, x: Any) -> str | None:
  """Parameters without the tensor that comes first; None where they are not known."""
  kind = isinstance(x, type)
  if kind and issubclass(x, torch.nn.RNNBase) and x is not torch.nn.RNNBase: x, skipped = torch.nn.RNNBase, {"self", "mode"}
  else: skipped = {"self"}
  try: every = inspect.signature(x.__init__ if kind else x).parameters
  except (TypeError, ValueError): every = {}  # type: ignore[assignment]
  given = [p for p in every.values() if p.name not in skipped]
  plain = [p for p in given if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
  if plain:
    names = [p.name for p in plain]
    rooms = "nn.init", "nn.utils", "nn.Module", "optim", "utils"
    tensor_first = not kind and "self" not in every and not name.startswith(rooms)
    return ", ".join(names[1:] if tensor_first and names[0] != "size" else names)
  found = [[a.name for a in s[("Tensor" in str(s[0].type)):]] for s in schemas(name.split(".")[-1])]
  if not found: return None if not given else ""
  more = [p for f in found[1:] for p in f if p not in found[0]]
  return ", ".join(found[0]) + (" | " + ", ".join(dict.fromkeys(more)) if more else "")


def main() -> None:
  tt = torch
  groups: list[tuple[str, Any, list[str]]] = [
    ("Tensor.", tt.Tensor, public(tt.Tensor)), ("torch.", tt, functions(tt) + TYPES.split()),
    ("linalg.", tt.linalg, of("linalg.")),
    ("nn.", tt.nn, [n for n in public(tt.nn) if isinstance(getattr(tt.nn, n), type)]),
    ("nn.Module.", tt.nn.Module, public(tt.nn.Module)), ("nn.functional.", F, of("nn.functional.")),
    ("nn.init.", tt.nn.init, of("nn.init.")), ("nn.utils.", tt.nn.utils, of("nn.utils.")),
    ("optim.", tt.optim, of("optim.")), ("optim.lr_scheduler.", tt.optim.lr_scheduler, of("optim.lr_scheduler.")),
    ("special.", tt.special, [n for n in functions(tt.special) if not n.endswith("args") and "common" not in n]),
    ("fft.", tt.fft, [n for n in functions(tt.fft)]), ("utils.data.", tt.utils.data, of("utils.data.")),
    *[(prefix, m, names.split()) for prefix, (m, names) in SOME.items()]]
  lines = []
  for prefix, m, names in groups:
    for n in sorted(set(names)):
      if not hasattr(m, n): continue
      x = getattr(m, n)
      said = parameters(prefix + n, x) if callable(x) and not (isinstance(x, type) and prefix not in ("nn.", "optim.")) else None
      lines.append(prefix + n + ("" if said is None else f"({said})"))
  (Path(__file__).parent / "pytorch.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__": main()
