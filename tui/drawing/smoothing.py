"""An exponential moving average, as TensorBoard draws it: without a pull towards zero at the beginning."""

from __future__ import annotations

import math
from array import array
from dataclasses import replace

from ..reading.series import Line


def smoothed(line: Line, weight: float) -> Line:
    """Each value with the earlier ones of its unbroken part; `weight` (0 to 1) is what they count for one reading.

    A point that stands for several readings moves the average as much as these would.
    """
    keep = weight**line.each
    average, known = 0.0, 0.0
    y = array("d")
    for index, value in enumerate(line.y):
        if index in line.breaks:
            average = known = 0.0
        if math.isfinite(value):
            average = keep * average + (1 - keep) * value
            known = keep * known + (1 - keep)
        y.append(average / known if known else value)
    return replace(line, y=y, low=array("d"), high=array("d"), made={})
