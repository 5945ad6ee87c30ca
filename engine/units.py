"""Values as text, in one form everywhere: bytes, shares, durations, rates and counts.

A space stands before every unit, `%` and `°C` included, as ISO 80000-1 and the SI brochure write it: `82 %`. Bytes are
in the binary units of IEC 80000-13 (KiB, MiB, GiB), in which GPUs, containers and TensorFlow count their memory; rates
of bytes are too. Files keep the unit that their key names (`peak_memory_bytes`, `device.memory_limit_mb`). Numbers have
about three significant digits and commas between thousands. An unknown value is a dash, never 0.
"""

from __future__ import annotations

from collections.abc import Callable

NONE = "-"
_BINARY = ("B", "KiB", "MiB", "GiB")
GIB = 1024**3
_PLURALS = {"ies": "y", "ches": "ch", "sses": "ss", "xes": "x"}  # endings, and those of the singular
MINUTE, HOUR, DAY = 60, 3600, 86400


def amount(value: float | None, decimals: int | None = None) -> str:
    """So many decimals, or about three significant digits: 0.0123, 1.23, 123, 12,346."""
    if value is None:
        return NONE
    if decimals is not None or abs(value) >= 100:
        return f"{value:,.{decimals or 0}f}"
    return f"{value:.3g}" if value else "0"


def three_digits(value: float | None) -> str:
    """Three significant digits, zeros at the end too, for values below each other: 1.00, 0.110, 0.0607."""
    return amount(value) if value is None or abs(value) >= 99.95 else f"{value:#.3g}"


def count(value: float | None) -> str:
    """12,346."""
    return amount(value, 0)


def abbreviated(value: float | None) -> str:
    """Large counts in short: 23.5 M, 1.2 G."""
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value is not None and value >= 0.9995 * limit:  # what is 1,000 of the smaller unit once it is rounded
            return f"{value / limit:.3g} {letter}"
    return count(value)


def counted(number: int | float | None, things: str) -> str:
    """A number of things, given in the plural: 1 step, 12,346 steps."""
    return f"{count(number)} {named(number, things)}"


def named(number: int | float | None, things: str) -> str:
    """The word for so many things: step, steps."""
    if number != 1 or not things.endswith("s"):
        return things
    ending = next((ending for ending in _PLURALS if things.endswith(ending)), "s")
    return things.removesuffix(ending) + _PLURALS.get(ending, "")


def share(value: float | None, decimals: int = 0) -> str:
    """A part of a whole, 0 to 1, in percent: 82 %."""
    return NONE if value is None else f"{100 * value:.{decimals}f} %"


def percent(value: float | None) -> str:
    """A share in five characters, for places that are repainted: ` 82 %`, `  - %`."""
    return f"{NONE:>3} %" if value is None else f"{share(value):>5}"


def change(value: float | None, unit: str = "%") -> str:
    """A relative difference with its sign: +131 %, -3.2 %; of two shares in `points`."""
    return NONE if value is None else f"{100 * value:+.{_change_decimals(value)}f} {unit}"


def spread(value: float | None, unit: str = "%") -> str:
    """The spread of relative differences, with the decimals of `change`: 3.2 %."""
    return NONE if value is None else f"{100 * value:.{_change_decimals(value)}f} {unit}"


def _change_decimals(value: float) -> int:
    return 0 if abs(value) >= 1 else 1


def times(factor: float | None) -> str:
    """A factor: 2.31 times."""
    return NONE if factor is None else f"{factor:.{2 if factor < 10 else 1}f} times"


def size(value: float | None) -> str:
    """Bytes: 70 B, 1.5 MiB, 512 GiB."""
    if value is None:
        return NONE
    power = next((power for power in range(3) if round(abs(value) / 1024**power) < 1024), 3)
    value /= 1024**power
    return f"{value:.{0 if abs(value) >= 99.95 or power == 0 else 1}f} {_BINARY[power]}"


def rate(value: float | None) -> str:
    """Bytes a second: 1.5 MiB/s."""
    return NONE if value is None else f"{size(value)}/s"


def gibibytes(value: float | None) -> str:
    """Bytes as a bare number of GiB, for several of them before one unit: 61.4, 512."""
    return NONE if value is None else f"{value / GIB:.{0 if value >= 100 * GIB else 1}f}"


def performance_state(value: float | None) -> str:
    """As NVIDIA writes it: P0."""
    return NONE if value is None else f"P{value:.0f}"


def seconds(value: float | None) -> str:
    """A duration: 4.2 s, 3:07, 2:05:09."""
    return f"{value:.1f} s" if value is not None and value < 59.95 else clock(None if value is None else round(value))


def clock(value: float | None) -> str:
    """A duration in whole seconds: 0:09, 2:05:09."""
    if value is None:
        return NONE
    minutes, rest = divmod(int(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def axis_time(value: float) -> str:
    """A duration at the tick of an axis, as short as it is exact: 0, 20 s, 5 min, 1:30 h, 2 d."""
    if value < MINUTE:
        return f"{value:.0f} s" if value else "0"
    if value < HOUR:
        minutes, rest = divmod(round(value), MINUTE)
        return f"{minutes}:{rest:02} min" if rest else f"{minutes} min"
    if value < 2 * DAY:
        hours, rest = divmod(round(value), HOUR)
        return f"{hours}:{rest // MINUTE:02} h" if rest >= MINUTE else f"{hours} h"
    return f"{value / DAY:.3g} d"


def estimate(value: float) -> str:
    """An estimated duration, in coarse steps: 10 s, 90 s, 4 min, 2.5 h."""
    if value < 100:
        return f"{max(10, round(value, -1)):.0f} s"
    return f"{value / MINUTE:.0f} min" if value < 100 * MINUTE else f"{value / HOUR:.1f} h"


# ---- by the name of a unit --------------------------------------------------------------------

_FORMS: dict[str, Callable[[float | None], str]] = {
    "count": count,
    "share": share,
    "change": change,
    "spread": spread,
    "times": times,
    "bytes": size,
    "bytes/s": rate,
    "seconds": seconds,
    "P": performance_state,
}
_UNITLESS = ("value", "")


def is_plain(unit: str) -> bool:
    """Whether values of the unit are bare numbers."""
    return unit not in _FORMS


def bare(value: float | None, unit: str, decimals: int | None = None) -> str:
    """A value of that unit; the unit stands with it only where its form has one, as 82 % and 1.5 GiB do."""
    form = _FORMS.get(unit)
    return form(value) if form is not None else amount(value, decimals)


def with_unit(value: float | None, unit: str, decimals: int | None = None) -> str:
    """A value with its unit in any case: 12.3 ms, 1,234 samples/s."""
    needs_none = value is None or unit in _FORMS or unit in _UNITLESS
    return bare(value, unit, decimals) + ("" if needs_none else f" {unit}")
