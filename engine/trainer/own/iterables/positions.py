"""Draws batches from a user's iterators, and knows at each moment which batch of which pass comes next.

A resumed training continues with the very next batch: from the saved state of the iterator if it has one, else from the
beginning of the pass, whose batches up to there are drawn and left out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

from ..user_code import UserError
from .kinds import Passes

_END = object()
_PATIENCE_SECONDS = 5.0  # for a batch that is being drawn when the training ends
_MOST_KEPT = 1024  # states; beyond that, every second one is dropped


class Positions:
    """The batches of `passes`, pass after pass. `role` is `train` or `validation`.

    `as_tensors` makes a batch for TensorFlow of one of the user's. `steps` is the name of the setting for the number of
    batches, for messages.
    """

    def __init__(self, passes: Passes, role: str, as_tensors: Callable[[Any], Any], steps: str) -> None:
        self.passes = passes
        self.fault: UserError | None = None
        self._role, self._as_tensors, self._steps = role, as_tensors, steps
        self._reading, self._keeping = threading.Lock(), threading.Lock()
        self._iterator: Any = None
        self._closed = False
        self._drawn = 0  # batches up to now
        self._of_pass = 0  # batches of the present pass
        # Batches drawn -> what is needed to continue there. A pass without a state can only be begun.
        self._kept: dict[int, dict[str, Any]] = {}

    def batches(self, first: int) -> Iterator[Any]:
        """Yield the batches from number `first` on, without an end. Raises ValueError, with the UserError in `fault`,
        as TensorFlow hands on only a text.
        """
        try:
            with self._reading:
                self._go_to(first)
            while True:
                with self._reading:
                    if self._closed:
                        return
                    batch = self._next()
                yield batch
        except UserError as fault:
            self.fault = fault
            raise ValueError(str(fault)) from fault

    def state(self, step: int) -> dict[str, Any] | None:
        """Return what `restore` needs to continue after `step` batches. None if nothing is needed."""
        with self._keeping:
            before = [number for number in self._kept if number <= step]
            if not before:
                return None
            number = max(before)
            for older in (each for each in before if each < number):
                del self._kept[older]
            return {"batches": number, **self._kept[number]}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from what `state` has returned. To be called before the first batch is drawn."""
        kept = dict(state)
        self._kept = {int(kept.pop("batches")): kept}

    def close(self) -> None:
        """End the processes and threads of the present iterator. No further batch is drawn."""
        if not self._reading.acquire(timeout=_PATIENCE_SECONDS):
            return
        try:
            self._closed = True
            if self._iterator is not None:
                self.passes.close(self._iterator)
        finally:
            self._reading.release()

    def _go_to(self, number: int) -> None:
        """Make batch `number` (from 0) the next one."""
        if self._iterator is None or self._drawn > number:
            self._reopen(number)
        while self._drawn < number:
            self._next()

    def _reopen(self, number: int) -> None:
        with self._keeping:
            before = max((each for each in self._kept if each <= number), default=0)
            kept = self._kept.get(before, {"of_pass": 0, "state": None})
        self._begin(kept["state"])
        self._drawn, self._of_pass = before, kept["of_pass"]
        self._keep()

    def _begin(self, state: Any = None) -> None:
        if self._iterator is not None:
            self.passes.close(self._iterator)
        self._iterator, self._of_pass = self.passes.begin(state), 0

    def _next(self) -> Any:
        while True:
            batch = next(self._iterator, _END)
            if batch is not _END:
                tensors = self._as_tensors(batch)
                break
            if self.passes.once:
                raise UserError(
                    f"{self._role} ended after {self._drawn} batches, and more are needed: {self.passes.name} has only "
                    "one pass",
                    f"let it yield without an end, return the function that makes it, or lower {self._steps}",
                )
            if not self._of_pass:
                raise UserError(f"a pass over {self._role} has no batches", "check where it reads from")
            self._begin()
            self._keep()
        self._drawn += 1
        self._of_pass += 1
        self._keep()
        return tensors

    def _keep(self) -> None:
        state = self.passes.state(self._iterator)
        if state is None and (self._of_pass or self.passes.once):
            return
        with self._keeping:
            self._kept[self._drawn] = {"of_pass": self._of_pass, "state": state}
            if len(self._kept) > _MOST_KEPT:
                self._kept = dict(list(self._kept.items())[-1::-2][::-1])
