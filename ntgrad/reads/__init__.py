"""What a user's code reads from outside of its arguments: found in the code, noted and compared at the next call."""
from .code import reads_of
from .objects import wrappers
from .places import Reads

__all__ = ["Reads", "reads_of", "wrappers"]
