"""Names for the tensors of a model, and the files that tensors are kept in, read and written by our own code. Files come from
strangers: everything in one is checked before a tensor is made of it, and nothing in one is ever run. Bytes of tensors are read
from the file when they are first needed.
"""
from ntgrad.compat.public import show

from .archives import npz_load, npz_save, tar_extract, zip_extract
from .gguf import gguf_load
from .names import get_parameters, get_state_dict, load_state_dict
from .safetensors import SAFE_DTYPES, safe_load, safe_load_metadata, safe_save
from .torch_files import torch_load, torch_save

__all__ = ["SAFE_DTYPES", "get_parameters", "get_state_dict", "gguf_load", "load_state_dict", "npz_load", "npz_save", "safe_load",
           "safe_load_metadata", "safe_save", "tar_extract", "torch_load", "torch_save", "zip_extract"]

show(__name__)
