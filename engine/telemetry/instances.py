"""Activity of the instances of a GPU in MIG mode, for which NVML has no utilization: by GPM, from Hopper on.

The whole GPU and its instances are read in turn, one at each reading, so that a reading of seven instances takes the
driver hardly longer than one of a whole GPU. Nothing is missed by that: the figures are means since the last time.
"""

from __future__ import annotations

from collections.abc import Sequence

from .flow import Source
from .questions import Handle, Values
from .reasons import Reason, or_none
from .traffic import GPM_SHARES, Gpm, ask_for_gpm


class Instances:
    """The GPM figures of one GPU's instances; a fault that means a lost GPU is raised."""

    def __init__(self, gpu: Handle) -> None:
        self._gpu = gpu
        self._chip = Source(self._has_gpm)  # asked once for all instances
        self._sources: dict[int, Source[Gpm]] = {}  # by the id of the GPU instance, the next one to read first
        self._known: dict[int, Values] = {}
        self._left = 0  # instances to read before the turn of the whole GPU

    @property
    def turn_of_the_whole(self) -> bool:
        return self._left <= 0

    def read(self, listed: Sequence[Values]) -> list[Values]:
        """The instances as listed, each with what is known of its activity."""
        self._follow({one["gpu_instance"] for one in listed if one.get("gpu_instance") is not None})
        if self.turn_of_the_whole:
            self._left = len(self._sources)
        elif self._sources:
            self._left -= 1
            self._read_next()
        return [{**one, **self._known.get(one.get("gpu_instance", -1), {})} for one in listed]

    def close(self) -> None:
        """Release what the driver holds for GPM."""
        self._follow(set())

    def _read_next(self) -> None:
        instance = next(iter(self._sources))
        source = self._sources[instance] = self._sources.pop(instance)
        found = source.ask(Gpm.read)
        shares = {} if isinstance(found, Reason) else {key: found[key] for key in GPM_SHARES}
        self._known[instance] = {key: value for key, value in shares.items() if not isinstance(value, Reason)}

    def _follow(self, instances: set[int]) -> None:
        """Instances are made and destroyed while the GPU is read; where the chip has no GPM there is none to read."""
        if instances and isinstance(self._chip.ask(lambda _: True), Reason):
            instances = set()
        for gone in self._sources.keys() - instances:
            reader = self._sources.pop(gone).reader
            self._known.pop(gone, None)
            if reader is not None:
                or_none(reader.close)
        for new in sorted(instances - self._sources.keys()):
            self._sources[new] = self._source(new)

    def _has_gpm(self) -> bool:
        ask_for_gpm(self._gpu)
        return True

    def _source(self, instance: int) -> Source[Gpm]:
        return Source(lambda: Gpm(self._gpu, instance))
