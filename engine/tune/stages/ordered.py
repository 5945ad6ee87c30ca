"""The ordered search: without the input the options of the device, then the input, and what chance may have rejected.

What is slowest hides what everything else gains. So the input is left out while the options of the device are tried
(input.py), and of these the steps in one execution come before precision and XLA, as they take away the time of Python
between the steps (device.py). The input comes last: only the final speed of the device says how fast it has to be.

A training that waits for its input for a fifth of the time or more is the exception: its input comes first. Nothing
else can gain as much, and a search with few minutes would not come to it.
"""

from __future__ import annotations

from collections.abc import Callable

from ..candidates.screening import Screening
from ..candidates.search_trials import OutOfTime
from ..candidates.space import Space
from ..memory_model import MemoryModel
from .device import DeviceStages
from .input import InputStage
from .recheck import SecondLook

FOR_LARGEST = 3  # trials whose time is kept for the largest batch, if only the batch size is searched


class OrderedSearch:
    """Searches one option after another; the fastest settings are left in the screening.

    `keep_back` reserves seconds of the search for later parts. `is_short`: there is time for a few changes only.
    """

    def __init__(
        self,
        screening: Screening,
        space: Space,
        memory: MemoryModel,
        keep_back: Callable[[float], None],
        is_short: bool = False,
    ) -> None:
        self._screening, self._space, self._keep_back = screening, space, keep_back
        self._device, self._input = DeviceStages(screening, space, memory), InputStage(screening, space, is_short)

    def run(self) -> None:
        """Carry out the ordered search; raises Stopped and OutOfTime."""
        if tuple(self._space.limits.only) == ("batch_size",):
            self._fit_batch()
            return
        self._input.try_first()
        left_out = self._input.leave_out()
        self._device.run()
        if left_out:
            self._input.put_back()
        self._input.run()
        self._device.stage("threads")
        if left_out and not self._input.is_harmless:
            self._device.stage("batch_size")  # with the input another batch size may be the fastest
        SecondLook(self._screening, self._device.go_on_from).run()

    def _fit_batch(self) -> None:
        """Search the batch size alone: the fastest, with the preset's input, and the largest that fits."""
        self._keep_back(FOR_LARGEST * self._screening.trials.trial_seconds)
        try:
            self._device.stage("batch_size")
        except OutOfTime:
            self._keep_back(0.0)
            self._device.largest_batch()
            raise
        self._keep_back(0.0)
        self._device.largest_batch()
