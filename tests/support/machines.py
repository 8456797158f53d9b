"""CPUs that tests pretend to have: settings that make code for them. What runs is right on any CPU, which has wide vectors made
of its own."""
from __future__ import annotations

from typing import Any

MACHINES: dict[str, dict[str, Any]] = {"sse": {"vector_bits": 128, "cores": 1}, "avx2": {"vector_bits": 256, "cores": 16},
                                       "avx512": {"vector_bits": 512, "cores": 2}}
