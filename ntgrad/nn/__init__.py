"""Layers; optimizers in ``nn.optim``, names of tensors and safetensors files in ``nn.state``, batches in ``nn.data``, what to
train on in ``nn.datasets``, values to begin with in ``nn.init``.

A layer is a Module: an object with Tensors for attributes and a ``__call__``. A model may inherit from Module or be any object
that holds layers. Every name is loaded when it is used first."""
# ruff: noqa: F401, F403 - what a file has to give is its __all__
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ntgrad.compat.public import show
from ntgrad.compat.signatures import each_layer

if TYPE_CHECKING:
  from ntgrad.tensor.custom import checkpoint

  from . import data, datasets, functional, init, optim, parallel, state, utils
  from .activations import *
  from .attention import *
  from .containers import *
  from .convolution import *
  from .embedding import *
  from .layers import *
  from .linear import *
  from .losses import *
  from .module import *
  from .moving import *
  from .norms import *
  from .pooling import *
  from .recurrent import *
  from .tree import *

_NAMES = {   # by file
  "activations": "PReLU Softmax2d",
  "attention": "MultiHeadAttention MultiheadAttention Transformer TransformerDecoder TransformerDecoderLayer TransformerEncoder "
    "TransformerEncoderLayer",
  "containers": "ModuleDict ModuleList ParameterDict ParameterList Sequential",
  "convolution": "Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d",
  "embedding": "Embedding EmbeddingBag",
  "linear": "AdaptiveLogSoftmaxWithLoss Bilinear Linear",
  "losses": "CTCLoss",
  "module": "Module Parameter",
  "moving":
    "CircularPad1d CircularPad2d CircularPad3d ConstantPad1d ConstantPad2d ConstantPad3d Flatten Identity "
    "ReflectionPad1d ReflectionPad2d ReflectionPad3d ReplicationPad1d ReplicationPad2d "
    "ReplicationPad3d Unflatten ZeroPad1d ZeroPad2d ZeroPad3d",
  "norms":
    "BatchNorm BatchNorm1d BatchNorm2d BatchNorm3d CrossMapLRN2d GroupNorm InstanceNorm InstanceNorm1d InstanceNorm2d "
    "InstanceNorm3d LayerNorm LayerNorm2d LocalResponseNorm RMSNorm",
  "pooling": "Upsample UpsamplingBilinear2d UpsamplingNearest2d",
  "recurrent": "GRU GRUCell LSTM LSTMCell RNN RNNCell",
  "tree": "summary"}
_FILES = "data datasets functional init optim parallel state utils".split()
_FILE_OF = {row.partition("(")[0]: "layers" for row in each_layer()} | {
  name: file for file, names in _NAMES.items() for name in names.split()}

__all__ = [*_FILE_OF, *_FILES, "checkpoint"]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
  from importlib import import_module
  if name == "checkpoint": found = import_module("ntgrad.tensor.custom").checkpoint
  elif name in _FILES: found = import_module(f"ntgrad.nn.{name}")
  elif name in _FILE_OF: found = getattr(import_module(f"ntgrad.nn.{_FILE_OF[name]}"), name)
  else: raise AttributeError(name)
  return found

show(__name__)
