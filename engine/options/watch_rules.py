"""The rules of run.watch, each a line such as `stop if loss > 10`: what they may say, and what they mean."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

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
OF_GPUS, OF_BYTES, SUMS = ("gpu_busy", "throttled", "energy"), ("disk", "host_memory"), ("energy", "cost")
MEDIAN_OF = 20  # values, unless the rule names another number
_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0}
_EXAMPLES = "stop if loss > 10, or notify if gpu_busy < 30% for 5 min"
WORDS = f"a list of rules such as [{_EXAMPLES.replace(', or', ',')}]"
_RULE = re.compile(
    r"(?P<action>notify|warn|stop|give[_ ]way|pause) (?:if|when) (?P<figure>[A-Za-z_][\w./:-]*) (?P<test>.+)"
)
_NO_BETTER = re.compile(r"(?:is )?(?:no|not) (better|lower|higher) for ([1-9]\d{0,5}) epochs?")
_BOUND = re.compile(
    r"(?:is )?(?P<sign>[<>]|below|above) ?(?P<number>-?\d+(?:\.\d*)?(?:e[+-]?\d+)?)"
    r"(?: ?(?:x|times) (?:the )?(?P<median>median)(?: of(?: the last)? (?P<of_last>[1-9]\d{0,3}))?"
    r"| ?(?P<unit>%|[A-Za-z]+))?(?: at (?P<price>\d+(?:\.\d+)?) per (?P<per>kWh|hour))?"
    r"(?: for (?:(?P<time>\d{1,7}(?:\.\d+)?) ?(?P<of>s|min|h)|(?P<epochs>[1-9]\d{0,5}) epochs?))?",
    re.IGNORECASE,
)


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


def parse(text: str) -> WatchRule:
    """Return the rule that a line says. Raises ValueError with the reason, which says what is allowed."""
    line = re.sub(r" ?([<>]) ?", r" \1 ", " ".join(text.split()))
    if (match := _RULE.fullmatch(line)) is None:
        raise ValueError(
            f"{line!r} is no rule: write notify, warn, stop, give_way or pause, if, a figure and its bound: {_EXAMPLES}"
        )
    figure, test, units = match["figure"], match["test"], UNITS.get(match["figure"])
    head: dict[str, Any] = {"text": line, "action": match["action"].replace(" ", "_"), "figure": figure}
    such = "a bound such as > 10, > 3 x median of 20, or no better for 5 epochs"
    if units is not None:
        such = f"< or > and a number{' with its unit: ' * bool(units)}{', '.join(units)}"
        test = f"> 99.9% {test}" if figure == "throttled" and test.startswith("for ") else test
    elif figure not in OF_OWN_MODELS and (near := nearest(figure, UNITS)) is not None:
        raise ValueError(f"{line!r}: there is no figure {figure}, did you mean {near}?")
    elif no_better := _NO_BETTER.fullmatch(test):
        better = "higher" if "accuracy" in figure else "lower" if "loss" in figure else ""
        if not (way := better if no_better[1] == "better" else no_better[1]):
            raise ValueError(f"{line!r}: say whether {figure} is to fall or to rise: no lower for, or no higher for")
        return WatchRule(**head, test=f"no {way}", epochs=int(no_better[2]))
    bound = _BOUND.fullmatch(test)
    unit, factors = ((bound and bound["unit"]) or "").lower(), {"%": 0.01, "": 1.0} if units is None else units
    factor = {name.lower(): of for name, of in (factors or {"": 1.0}).items()}.get(unit)
    if bound is None or factor is None or (bound["median"] and units is not None):
        raise ValueError(f"{line!r}: after {figure} give {such}")
    if (figure == "cost") != bool(bound["price"]):
        price = "give the price, such as cost > 5 at 0.30 per kWh, or at 2.50 per hour"
        raise ValueError(f"{line!r}: {price if figure == 'cost' else 'only cost has a price'}")
    if (figure in SUMS and bound["time"]) or (units is not None and bound["epochs"]):
        raise ValueError(f"{line!r}: " + ("it is a sum, without a time" if figure in SUMS else "give s, min or h"))
    return WatchRule(
        **head,
        test={"below": "<", "above": ">"}.get(bound["sign"].lower(), bound["sign"]),
        bound=float(bound["number"]) * factor,
        is_share=unit == "%",
        median_of=int(bound["of_last"] or MEDIAN_OF) if bound["median"] else 0,
        seconds=float(bound["time"] or 0.0) * _SECONDS[(bound["of"] or "s").lower()],
        epochs=int(bound["epochs"] or 0),
        price=float(bound["price"] or 0.0),
        per=(bound["per"] or "").lower(),
    )


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
