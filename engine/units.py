"""Values as text, in one form everywhere. A space stands before every unit, also `%` and `°C` (ISO 80000-1), and bytes
have the binary units of IEC 80000-13, in which GPUs and TensorFlow count. An unknown value is a dash, never 0.
"""

from __future__ import annotations

import time
from collections.abc import Callable

NONE = "-"
_BINARY = ("B", "KiB", "MiB", "GiB")
GIB = 1024**3
_PLURALS = {"ies": "y", "ches": "ch", "sses": "ss", "xes": "x"}  # endings, and those of the singular
WITH_EXPONENT = 1e15  # from this amount on, such as the loss of a training that diverges
MINUTE, HOUR, DAY = 60, 3600, 86400


def amount(value: float | None, decimals: int | None = None) -> str:
    """By default the number has about three significant digits: 0.0123, 1.23, 123, 12,346 and 1.57e+19."""
    if value is None:
        return NONE
    if decimals is not None or 100 <= abs(value) < WITH_EXPONENT:
        return f"{value:,.{decimals or 0}f}"
    return f"{value:.3g}" if value else "0"


def three_digits(value: float | None) -> str:
    """Exactly three significant digits, so that a column aligns: 1.00, 0.110, 0.0607; from 100 on as `amount`."""
    return amount(value) if value is None or abs(value) >= 99.95 else f"{value:#.3g}"


def count(value: float | None) -> str:
    """A whole number: 12,346."""
    return amount(value, 0)


def abbreviated(value: float | None) -> str:
    """23.5 M, 1.2 G; below 1,000 as by `count`."""
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value is not None and value >= 0.9995 * limit:  # also a value that is rounded to 1,000 of the smaller unit
            return f"{value / limit:.3g} {letter}"
    return count(value)


def counted(number: int | float | None, things: str) -> str:
    """`things` is the plural: 1 step, 12,346 steps; of None: - steps."""
    return f"{count(number)} {named(number, things)}"


def named(number: int | float | None, things: str) -> str:
    """The noun in the form that the number needs; `things` is the plural."""
    if number != 1 or not things.endswith("s"):
        return things
    ending = next((ending for ending in _PLURALS if things.endswith(ending)), "s")
    return things.removesuffix(ending) + _PLURALS.get(ending, "")


def share(value: float | None, decimals: int = 0) -> str:
    """A part of a whole (0 to 1) in percent: 82 %."""
    return NONE if value is None else f"{100 * value:.{decimals}f} %"


def percent(value: float | None) -> str:
    """The text has at least five characters, so that repainted places keep their width: ` 82 %`, ` - %`."""
    return f"{NONE:>3} %" if value is None else f"{share(value):>5}"


def change(value: float | None, unit: str = "%") -> str:
    """A relative difference (0.05 is 5 %) with its sign: +131 %, -3.2 %."""
    return NONE if value is None else f"{100 * value:+.{_change_decimals(value)}f} {unit}"


def change_label(value: float) -> str:
    """Return the label of a scale: `+10 %`, `-2.5 %`, and `0`."""
    return f"{'+' if value > 0 else ''}{amount(100 * value)} %" if value else "0"


def spread(value: float | None, unit: str = "%") -> str:
    """It has as many decimals as `change` and no sign: 3.2 %."""
    return NONE if value is None else f"{100 * value:.{_change_decimals(value)}f} {unit}"


def _change_decimals(value: float) -> int:
    return 0 if abs(value) >= 1 else 1


def times(factor: float | None) -> str:
    """2.31 times."""
    return NONE if factor is None else f"{factor:.{2 if factor < 10 else 1}f} times"


def size(value: float | None) -> str:
    """70 B, 1.5 MiB, 512 GiB."""
    if value is None:
        return NONE
    power = next((power for power in range(3) if round(abs(value) / 1024**power) < 1024), 3)
    value /= 1024**power
    return f"{value:.{0 if abs(value) >= 99.95 or power == 0 else 1}f} {_BINARY[power]}"


def rate(value: float | None) -> str:
    """1.5 MiB/s."""
    return NONE if value is None else f"{size(value)}/s"


def gibibytes(value: float | None) -> str:
    """61.4, 512: the unit follows once after several numbers."""
    return NONE if value is None else f"{value / GIB:.{0 if value >= 99.95 * GIB else 1}f}"


def performance_state(value: float | None) -> str:
    """NVIDIA's form: P0."""
    return NONE if value is None else f"P{value:.0f}"


def seconds(value: float | None) -> str:
    """4.2 s, 3:07, 2:05:09."""
    return f"{value:.1f} s" if value is not None and value < 59.95 else clock(None if value is None else round(value))


def clock(value: float | None) -> str:
    """Seconds without fractions: 0:09, 2:05:09."""
    if value is None:
        return NONE
    minutes, rest = divmod(int(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def since(then: float, now: float | None = None) -> str:
    """`since 14:05`, with its day (`Nov 26`) if that is not today, and the year if that is another one."""
    moment, today = time.localtime(then), time.localtime(now)
    day = "" if moment[:3] == today[:3] else "%b %d " if moment[0] == today[0] else "%Y-%m-%d "
    return time.strftime(f"since {day}%H:%M", moment)


def axis_time(value: float) -> str:
    """The shortest form: 0, 20 s, 5 min, 5:30, 1:30 h, 2 d; cut to minutes from an hour on."""
    if value < MINUTE:
        return f"{value:.0f} s" if value else "0"
    if value < HOUR:
        minutes, rest = divmod(round(value), MINUTE)
        return f"{minutes}:{rest:02}" if rest else f"{minutes} min"
    if value < 2 * DAY:
        hours, rest = divmod(round(value), HOUR)
        return f"{hours}:{rest // MINUTE:02} h" if rest >= MINUTE else f"{hours} h"
    return f"{value / DAY:.3g} d"


def estimate(value: float) -> str:
    """Rounded coarsely: 10 s (the least), 90 s, 4 min, 2.5 h."""
    if value < 100:
        return f"{max(10, round(value, -1)):.0f} s"
    return f"{value / MINUTE:.0f} min" if value < 100 * MINUTE else f"{value / HOUR:.1f} h"


# ---- by the name of a unit --------------------------------------------------------------------

_FORMS: dict[str, Callable[[float | None], str]] = {
    "count": count, "share": share, "change": change, "spread": spread, "times": times, "bytes": size,
    "bytes/s": rate, "seconds": seconds, "P": performance_state,
}  # fmt: skip
_UNITLESS = ("value", "")


def is_plain(unit: str) -> bool:
    """A plain number with its unit, and no form of its own as `share`, `bytes` and `seconds`."""
    return unit not in _FORMS


def bare(value: float | None, unit: str, decimals: int | None = None) -> str:
    """Leave out the unit, unless it belongs to the form, such as 82 % and 1.5 GiB; these have no `decimals`."""
    form = _FORMS.get(unit)
    return form(value) if form is not None else amount(value, decimals)


def with_unit(value: float | None, unit: str, decimals: int | None = None) -> str:
    """12.3 ms, 1,234 samples/s; a dash without a unit."""
    needs_none = value is None or unit in _FORMS or unit in _UNITLESS
    return bare(value, unit, decimals) + ("" if needs_none else f" {unit}")
