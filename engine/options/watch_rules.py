"""The rules of run.watch, each a line such as `stop if loss > 10`: what they may say, and what they mean."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from ..frozen import dataclass
from .catalogue import nearest
from .training import OF_OWN_MODELS

Action = Literal["notify", "warn", "stop", "give_way", "pause"]
KEY = "run.watch"
ENDS = ("stop", "give_way", "pause")  # the actions that end the run
NEEDS_CHECKPOINT = ("give_way", "pause")
_SHARES = {"%": 0.01}
_BYTES = {"MB": 1e6, "GB": 1e9, "TB": 1e12, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40}
# The figures of the machine, with the factors of their units. Any other name is a figure of the training.
UNITS: Mapping[str, Mapping[str, float]] = {
    "gpu_busy": _SHARES,  # the mean of the GPUs that train
    "throttled": _SHARES,  # the time in which power or heat lowers the clock of one of them
    "energy": {"Wh": 1.0, "kWh": 1000.0},  # of the GPUs that train, over all launches of the run
    "cost": {},
    "disk": _SHARES | _BYTES,  # free, where the run folder is
    "host_memory": _SHARES | _BYTES,  # used
}
OF_GPUS = ("gpu_busy", "throttled", "energy")
SUMS = ("energy", "cost")
LOWER, HIGHER = ("loss", "val_loss"), ("accuracy", "val_accuracy")  # the direction in which they get better
MEDIAN_OF = 20  # values, unless the rule names another number
_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0}
_EXAMPLES = "stop if loss > 10, or notify if gpu_busy < 30% for 5 min"
WORDS = f"a list of rules such as [{_EXAMPLES.replace(', or', ',')}]"
_RULE = re.compile(
    r"(?P<action>notify|warn|stop|give[_ ]way|pause) (?:if|when) (?P<figure>[A-Za-z_][\w./:-]*) (?P<test>.+)"
)
_NO_BETTER = re.compile(r"(?:is )?(?:no|not) (better|lower|higher) for (\d{1,6}) epochs?")
_TIME = r"(?P<time>\d{1,7}(?:\.\d+)?) ?(?P<of>s|min|h|epochs?)"
_BOUND = re.compile(
    r"(?:is )?(?P<sign>[<>]|below|above) ?(?P<number>-?\d[\d_]*(?:\.\d*)?(?:e[+-]?\d+)?)"
    r"(?: ?(?:x|times) (?:the )?(?P<median>median)(?: of(?: the last)? (?P<of_last>[1-9]\d{0,3}))?"
    r"| ?(?P<unit>%|[A-Za-z]+))?"
    rf"(?: at (?P<price>\d+(?:\.\d+)?) per (?P<per>kWh|hour))?(?: for {_TIME})?",
    re.IGNORECASE,
)
_ALWAYS = re.compile(rf"for {_TIME}")


@dataclass(frozen=True)
class WatchRule:
    """`bound` is in the plain unit of the figure (a share, bytes, Wh), or with `median_of` a factor of the median of so
    many values. With `seconds` or `epochs` the mean over so long is judged.
    """

    text: str
    action: Action
    figure: str
    test: str  # <, >, no lower or no higher
    bound: float = 0.0
    is_share: bool = False  # the bound was given in %
    median_of: int = 0
    seconds: float = 0.0
    epochs: int = 0
    price: float = 0.0
    per: str = ""  # kwh or hour

    @property
    def of_training(self) -> bool:
        """True for a figure of the training, such as the loss, and not of the machine."""
        return self.figure not in UNITS


def parse(text: str) -> WatchRule:
    """Return the rule that a line says. Raises ValueError with the reason, which says what is allowed."""
    line = re.sub(r" ?([<>]) ?", r" \1 ", " ".join(text.split()))
    if (match := _RULE.fullmatch(line)) is None:
        raise ValueError(
            f"{line!r} is no rule: write notify, warn, stop, give_way or pause, if, a figure and its bound: {_EXAMPLES}"
        )
    figure, test, units = match["figure"], match["test"], UNITS.get(match["figure"])
    head: dict[str, Any] = {"text": line, "action": match["action"].replace(" ", "_"), "figure": figure}
    if units is None and figure not in OF_OWN_MODELS and (near := nearest(figure, UNITS)) is not None:
        raise ValueError(f"{line!r}: there is no figure {figure}, did you mean {near}?")
    if units is None and (no_better := _NO_BETTER.fullmatch(test)):
        better = {"better": "lower" if figure in LOWER else "higher" if figure in HIGHER else ""}
        if not (way := better.get(no_better[1], no_better[1])):
            raise ValueError(f"{line!r}: say whether {figure} is to fall or to rise: no lower for, or no higher for")
        if not int(no_better[2]):
            raise ValueError(f"{line!r}: give a number of epochs from 1 on")
        return WatchRule(**head, test=f"no {way}", epochs=int(no_better[2]))
    if figure == "throttled" and (always := _ALWAYS.fullmatch(test)):
        return WatchRule(**head, test=">", bound=0.999, is_share=True, **_duration(line, always, figure))
    if (bound := _BOUND.fullmatch(test)) is None:
        such = "a bound such as > 10, > 3 x median of 20, or no better for 5 epochs"
        raise ValueError(f"{line!r}: after {figure} give {such if units is None else _bound_of(figure)}")
    unit, sign = bound["unit"] or "", {"below": "<", "above": ">"}.get(bound["sign"].lower(), bound["sign"])
    factors = {"%": 0.01, "": 1.0} if units is None else units or {"": 1.0}
    factor = next((of for name, of in factors.items() if name.lower() == unit.lower()), None)
    if factor is None or (bound["median"] and units is not None):
        raise ValueError(f"{line!r}: after {figure} give {_bound_of(figure)}")
    if (figure == "cost") != bool(bound["price"]):
        price = "give the price, such as cost > 5 at 0.30 per kWh, or at 2.50 per hour"
        raise ValueError(f"{line!r}: {price if figure == 'cost' else 'only cost has a price'}")
    return WatchRule(
        **head,
        test=sign,
        bound=float(bound["number"]) * factor,
        is_share=unit == "%",
        median_of=int(bound["of_last"] or MEDIAN_OF) if bound["median"] else 0,
        price=float(bound["price"] or 0.0),
        per=(bound["per"] or "").lower(),
        **(_duration(line, bound, figure) if bound["time"] else {}),
    )


def _bound_of(figure: str) -> str:
    units = ", ".join(UNITS.get(figure, _SHARES))
    return "< or > and a number" + (f" with its unit: {units}" if figure in UNITS and units else "")


def _duration(line: str, match: re.Match[str], figure: str) -> dict[str, Any]:
    number, unit = float(match["time"]), match["of"].lower()
    if figure in SUMS:
        raise ValueError(f"{line!r}: {figure} is a sum, and has no time after for")
    if not unit.startswith("epoch"):
        seconds = number * _SECONDS[unit]
        if seconds <= 0:
            raise ValueError(f"{line!r}: give a time above 0 after for")
        return {"seconds": seconds}
    if figure in UNITS:
        raise ValueError(f"{line!r}: give the time of {figure} in s, min or h")
    if number != int(number) or number < 1:
        raise ValueError(f"{line!r}: give a whole number of epochs from 1 on")
    return {"epochs": int(number)}


def parsed(rules: list[str]) -> list[WatchRule]:
    """Return the rules in their order. Raises ValueError, also if one stands there twice."""
    lines = [parse(rule) for rule in rules]
    if twice := next((rule.text for rule in lines if lines.count(rule) > 1), None):
        raise ValueError(f"{twice!r} is given twice")
    return lines


def as_list(value: object) -> object:
    """For `reads`: rules in one text are separated by commas or semicolons."""
    if isinstance(value, str):
        value = re.split(r"[,;]", value)
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return [" ".join(each.split()) for each in value if each.strip()]
    return value
