"""``python -m ntgrad``, and the script ``ntgrad``: a file for each command or group of commands. ``main.py`` lists them."""
