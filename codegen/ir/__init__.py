"""The one node type (UOp) and what nodes are made of: dtypes, operations, functions. Also settings, errors and targets."""
