"""The values of `device.visible` that leave the choice of the GPUs to gputui: `free:2`, `fits:1@24GB`, `free:1@T4`."""

import re
from dataclasses import dataclass

PATTERN = r"^(free|fits):[1-9][0-9]{0,2}(@[0-9]{1,4}GB)?(@[A-Za-z][0-9A-Za-z -]{0,40})?$"
_GIBIBYTE = 1024**3
_PARTS = re.compile(PATTERN)


@dataclass(frozen=True)
class GpuChoice:
    """A request for `count` GPUs that gputui chooses: those that nothing else uses (`free`), or if `shared` (`fits`)
    also those whose free memory is enough. `least_bytes` is the least total memory of each, `name` a part of its name.
    """

    count: int
    shared: bool = False
    least_bytes: int = 0
    name: str = ""

    def __str__(self) -> str:
        size = f"@{self.least_bytes // _GIBIBYTE}GB" if self.least_bytes else ""
        return f"{'fits' if self.shared else 'free'}:{self.count}{size}{f'@{self.name}' if self.name else ''}"

    def allows(self, name: str | None, total_bytes: int | None) -> bool:
        """A tenth of the memory may be missing: a GPU sold with 24 GB reports some hundred MiB less."""
        is_named = self.name.lower() in (name or "").lower()
        return is_named and (not self.least_bytes or (total_bytes or 0) >= 0.9 * self.least_bytes)

    @property
    def kind(self) -> str:
        """The words for it: `2 GPUs`, `a GPU of the kind A100 with 24 GB`."""
        what = "a GPU" if self.count == 1 else f"{self.count} GPUs"
        what += f" of the kind {self.name}" if self.name else ""
        return what + (f" with {self.least_bytes // _GIBIBYTE} GB" if self.least_bytes else "")


def parse(value: object) -> GpuChoice | None:
    """Return the request in device.visible such as `free:2`; None for a value that names its devices itself."""
    if not isinstance(value, str) or _PARTS.match(value) is None:
        return None
    kind, _, rest = value.partition(":")
    count, *kinds = rest.split("@")
    sizes = [word for word in kinds if re.fullmatch(r"[0-9]+GB", word)]
    least = int(sizes[0].removesuffix("GB")) * _GIBIBYTE if sizes else 0
    return GpuChoice(int(count), kind == "fits", least, next((word for word in kinds if word not in sizes), ""))
