"""Which Opts a kernel gets on a target: by the roles of its axes, the prices of plans, and what fits a core."""
