"""The interface between data and the training loop, for gputui's pipeline and for the data of a user's own code."""

from __future__ import annotations

from typing import Protocol

import tensorflow as tf

from .share import Share
from .stage_names import Stage


class Batches(Protocol):
    """Endless training and validation batches; counts are None where unknown."""

    @property
    def replicas(self) -> int: ...

    @property
    def replicas_here(self) -> int:
        """Those of this process."""
        ...

    @property
    def share(self) -> Share | None:
        """This worker's part of the data, where several machines train together."""
        ...

    @property
    def sharing(self) -> str:
        """How the data is shared out among them; empty for one machine."""
        ...

    @property
    def global_batch_size(self) -> int: ...

    @property
    def batches_per_pass(self) -> int: ...

    @property
    def validation_batches(self) -> int: ...

    @property
    def smaller_last_batch(self) -> bool:
        """Whether a pass may end with a smaller batch."""
        ...

    @property
    def train_samples(self) -> int | None: ...

    @property
    def validation_samples(self) -> int | None: ...

    @property
    def sample_bytes(self) -> int | None: ...

    @property
    def device_scale(self) -> float | None:
        """The factor that scales bytes to floats on the device; None where the model takes its inputs unchanged."""
        ...

    def stream(self, first_step: int = 0) -> tf.data.Dataset: ...

    def validation(self) -> tf.data.Dataset: ...

    def stages(self) -> tuple[Stage, ...]: ...

    def find_fault(self) -> None: ...
