"""What is legal in each form of a program: tables of rules, checked after every pass with ``VERIFY=1``."""
