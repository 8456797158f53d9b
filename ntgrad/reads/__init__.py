"""What a user's code reads from outside of its arguments: found in the code (``reads_of``), noted (``Reads``) and compared at the
next call.

``places.py`` has the places and compares them, ``objects.py`` has what objects give, ``instructions.py`` and ``code.py`` go
through the code of functions.
"""
from .code import reads_of
from .objects import wrappers
from .places import Reads

__all__ = ["Reads", "reads_of", "wrappers"]
