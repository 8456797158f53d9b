"""The settings (see ``ntgrad.codegen.config``). Importing this module's name from the package gives the object ``config``."""
from ntgrad.codegen.config import Config, config

__all__ = ["Config", "config"]
