"""``create_schedule``, where scripts for tinygrad import it from."""
from __future__ import annotations

from ntgrad.schedule import ScheduleItem, create_schedule

__all__ = ["ScheduleItem", "create_schedule"]
