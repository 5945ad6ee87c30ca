"""How a figure is declared, and how its value is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from .. import units

# compare: `gputui compare` and its screen; summary: the result of a run; runs: the screen of all runs; listing:
# `gputui runs`; live: the line of a training without a screen; trial: the tables of a proof; history: `gputui history`;
# host: a piece of the host's row and panel (only figures of the host).
View = Literal["compare", "summary", "runs", "listing", "live", "trial", "history", "host"]
# Characters that a value of the unit takes at most, as a rule.
_WIDTHS = {"samples/s": 9, "share": 5, "change": 7, "bytes": 8, "value": 8, "seconds": 9}
_WIDTH = 7


@dataclass(frozen=True)
class Figure:
    """The declaration of a figure."""

    key: str  # its dotted place in the file (`step_ms.p50`)
    label: str
    unit: str
    about: str  # its meaning
    source: str  # the origin of its value
    short: str = ""  # its name in heads of columns, with the unit if the values have none
    narrow: str = ""  # in narrow columns
    more_is_better: bool | None = None  # None: neither
    digits: int | None = None  # decimals, None for about three significant digits
    progress: str = ""  # its name in a progress event
    shown: tuple[View, ...] = ()  # the views that show it
    of_gpu: bool = False  # not shown for a training on a CPU

    @property
    def head(self) -> str:
        """The head of a column whose values have no unit: the short name, or else the label."""
        return self.short or self.label

    @property
    def narrow_head(self) -> str:
        return self.narrow or self.head

    @property
    def name(self) -> str:
        """The short name without the unit. Empty if the short name is only the unit."""
        return self.head.removesuffix(self.unit).strip()

    @property
    def width(self) -> int:
        """The width, in characters, of a column with the narrow head."""
        return max(len(self.narrow_head), _WIDTHS.get(self.unit, _WIDTH))

    def bare(self, value: float | None) -> str:
        """Without its unit, unless that belongs to the form, such as 82 % and 1.5 GiB."""
        return units.bare(value, self.unit, self.digits)

    def text(self, value: float | None) -> str:
        """Return the value with its unit."""
        return units.with_unit(value, self.unit, self.digits)

    def item(self, value: float | None) -> tuple[str, str]:
        """Return the name and the value. The unit is in one of them."""
        return (self.name, self.text(value)) if self.name else (self.head, self.bare(value))

    def phrase(self, value: float | None) -> str:
        """Return name and value as one phrase: `1,234 samples/s`, `step 12.3 ms`, `input wait 5 %`."""
        return f"{self.name} {self.text(value)}".strip()


def at(values: object, key: str) -> float | None:
    """Return the number at a dotted key (`step_ms.p50`) in nested mappings or dataclasses; None without a number."""
    value = values
    for name in key.split("."):
        value = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
