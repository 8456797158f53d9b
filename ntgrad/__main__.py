"""``python -m ntgrad``: see ``ntgrad/utils/command/``."""
import sys

from ntgrad.utils.command.main import main

if __name__ == "__main__": sys.exit(main())
