"""``python -m ntgrad``: see ``ntgrad/command/``."""
import sys

from ntgrad.command.main import main

if __name__ == "__main__": sys.exit(main())
