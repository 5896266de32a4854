"""What counts as a reward: a finite number."""

from __future__ import annotations

import math
import numbers
from typing import Any

__all__ = ["finite"]


def finite(value: Any) -> float | None:
    """A real number (numpy's too; booleans are 0 and 1) as a float; None for NaN, an infinity and anything else."""
    if not isinstance(value, numbers.Real):
        return None
    try:
        number = float(value)
    except (OverflowError, ValueError):
        return None
    return number if math.isfinite(number) else None
