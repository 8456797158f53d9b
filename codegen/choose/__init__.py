"""Which Opts a kernel gets on a target: by its roles, its prices, and what fits."""
