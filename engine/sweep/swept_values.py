"""The values of swept options: `learning_rate=1e-3,3e-3` or `weight_decay=0..0.1`, as a grid or drawn at random."""

from __future__ import annotations

import itertools
import json
import math
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from .. import options, presets
from ..files import located_yaml
from ..options import ARGUMENTS, BY_KEY, OPTIONS, is_private
from ..options.catalogue import nearest
from ..options.own_code import remedy
from ..proof.request import ProofError
from ..trials import SAMPLERS
from ..trials.change_texts import value
from ..trials.change_texts import value as text_of
from ..trials.sweep_record import Axis

FEW = 3  # values of a range in a grid, unless `low..high:N` says how many
MOST_VALUES = 1000
DRAWS = 20  # for each setting, until it is another one
FACTOR = 10.0  # from this quotient of its ends on, a range is divided by equal factors
NOT_SWEPT = ("train.seed",)
_RANGE = re.compile(r"([-+.\deE]+)\.\.([-+.\deE]+)(?::(\d+))?")
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


def axis(text: str, in_grid: bool = True) -> Axis:
    """Return the swept option of `learning_rate=1e-3,3e-3`; `in_grid` a range gets values. Raises ProofError."""
    name, equals, listed = (part.strip() for part in text.partition("="))
    if not equals or not listed:
        raise ProofError(f"--over {text}: write OPTION=VALUE,VALUE or OPTION=LOW..HIGH")
    key = key_of(name)
    if key in NOT_SWEPT:
        raise ProofError(f"--over {text}: --seeds N trains each setting with N seeds")
    if match := _RANGE.fullmatch(listed):
        return _range(text, key, match, in_grid)
    distinct: dict[str, Any] = {}
    for word in map(str.strip, _split(text, listed)):
        if not word:
            raise ProofError(f"--over {text}: a value is missing next to a comma")
        if meant := located_yaml.trap(word):
            raise ProofError(f"--over {text}: {meant}")
        read = located_yaml.scalar(word)
        # for arguments of own code, 1 is not 1.0
        is_number = isinstance(read, int | float) and not isinstance(read, bool) and not is_argument(key)
        distinct.setdefault(json.dumps(float(read) if is_number else read, default=str), read)
    return Axis(key=key, values=list(distinct.values()))


def _split(text: str, listed: str) -> list[str]:
    """Splits `[64,64],[128]` at the commas outside brackets and quotes. Raises ProofError if one is not closed."""
    parts, depth, quote = [""], 0, ""
    for character in listed:
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        else:
            depth += (character in "[{") - (character in "]}")
        if character == "," and not quote and depth <= 0:
            parts.append("")
        else:
            parts[-1] += character
    if depth > 0 or quote:
        raise ProofError(f"--over {text}: {f'the quote {quote}' if quote else 'a bracket'} is not closed")
    return parts


def is_argument(key: str) -> bool:
    return key.startswith(f"{ARGUMENTS}.")


def key_of(name: str) -> str:
    """Return the key of the option `name`: `group.name`, or `workload.args.NAME`. Raises ProofError."""
    if names := options.argument_of(name):
        return ".".join((ARGUMENTS, *names))
    try:
        key = options.resolve_key(name, OPTIONS)
    except (KeyError, ValueError) as fault:
        raise ProofError(f"--over {name}: {fault.args[0]}") from None
    if key not in BY_KEY:
        raise ProofError(f"--over {name}: there is no such option; gputui options lists them")
    if is_private(key):
        raise ProofError(f"--over {name}: {key} does not concern the training")
    return key


def _range(text: str, key: str, match: re.Match[str], in_grid: bool) -> Axis:
    low, high, count = match.groups()
    if not (_NUMBER.fullmatch(low) and _NUMBER.fullmatch(high)) or not float(low) < float(high):
        raise ProofError(f"--over {text}: a range is LOW..HIGH, two numbers of which the first is the lower one")
    first, last = float(low), float(high)
    whole = BY_KEY[key].accepts.startswith("a whole number") if key in BY_KEY else (
        low.lstrip("+-").isdigit() and high.lstrip("+-").isdigit()
    )  # fmt: skip
    if not math.isfinite(first) or not math.isfinite(last):
        raise ProofError(f"--over {text}: the ends of a range are finite numbers")
    if whole and not (first.is_integer() and last.is_integer()):
        raise ProofError(f"--over {text}: the values are whole numbers, and so are the ends of a range")
    ranged = Axis(key=key, low=first, high=last, log=first > 0 and last / first >= FACTOR, whole=whole)
    if not in_grid and count is None:
        return ranged
    number = int(count or FEW)
    if not 2 <= number <= MOST_VALUES:
        raise ProofError(f"--over {text}: a range has 2 to {MOST_VALUES:,} values")
    if whole and count and number > last - first + 1:
        raise ProofError(f"--over {text}: from {low} to {high} there are only {last - first + 1:.0f} whole numbers")
    places = [value_at(ranged, place / (number - 1)) for place in range(number)]
    return Axis(key=key, values=list(dict.fromkeys(places)))


def value_at(ranged: Axis, share: float) -> float | int:
    """Return the value of a range at `share` (0 to 1) of its length, of at most 4 digits."""
    assert ranged.low is not None
    assert ranged.high is not None
    if ranged.log:
        value = math.exp(math.log(ranged.low) + share * math.log(ranged.high / ranged.low))
    else:
        value = ranged.low + share * (ranged.high - ranged.low)
    value = ranged.low if share <= 0 else ranged.high if share >= 1 else float(f"{value:.4g}")
    return round(value) if ranged.whole else value


def share_of(ranged: Axis, value: float) -> float:
    """Return at which share (0 to 1) of the length of a range a value lies: the inverse of `value_at`."""
    assert ranged.low is not None
    assert ranged.high is not None
    low, high, place = ranged.low, ranged.high, float(value)
    if ranged.log:
        low, high, place = math.log(low), math.log(high), math.log(place)
    return min(1.0, max(0.0, (place - low) / (high - low)))


def grid(axes: Sequence[Axis]) -> Iterator[dict[str, Any]]:
    for combined in itertools.product(*(each.values for each in axes)):
        yield {each.key: value for each, value in zip(axes, combined, strict=True)}


def drawn(axes: Sequence[Axis], seed: int, number: int) -> dict[str, Any]:
    """Return the setting `number` (from 0) of a random search: the same for the same `seed`."""
    source = random.Random(f"{seed} {number}")
    return {each.key: source.choice(each.values) if each.values else value_at(each, source.random()) for each in axes}


def distinct(axes: Sequence[Axis], seed: int, count: int) -> list[dict[str, Any]]:
    """Return at most `count` settings of a random search, each once."""
    settings: list[dict[str, Any]] = []
    for number in range(DRAWS * count):
        if len(settings) < count and (setting := drawn(axes, seed, number)) not in settings:
            settings.append(setting)
    return settings


def in_vain(axes: Sequence[Axis], without_effect: Mapping[str, str]) -> str:
    """Return which swept option has no effect on own code, unless its values, which may matter, are swept."""
    keys = [each.key for each in axes]
    key = next(filter(without_effect.__contains__, keys), "")
    if not key or any(map(is_argument, keys)):
        return ""
    change = remedy(key, without_effect[key]) or "sweep a value that your code reads, as --over args.NAME=VALUES"
    return f"{key} does nothing here: {without_effect[key]}; {change}"


def as_settings(changes: Mapping[str, Any]) -> list[str]:
    return [f"{key}={value(of)}" for key, of in changes.items()]


# The entries by the parameter of the command that each stands for, with the type, the least and the largest value.
ENTRIES: Mapping[str, tuple[str, type, float, float]] = {
    "metric": ("metric", str, 0, 0),
    "seeds": ("seeds", int, 1, 100),
    "minutes": ("minutes", float, 0.01, 1e7),
    "sampler": ("sampler", str, 0, 0),
    "trials": ("most_trials", int, 2, 10_000),
    "halving": ("halve_from", int, 0, 1_000_000),
    "proof_seeds": ("proof_seeds", int, 0, 100),
    "finalists": ("finalists", int, 2, 20),
    "parallel": ("parallel", int, 1, 1000),
    "study": ("study", str, 0, 0),
    "name": ("study_name", str, 0, 0),
}
OVER = "over"


def parameters(name: str) -> dict[str, Any]:
    """Return the parameters of `gputui sweep` in a preset; empty without a block. Raises PresetError and ProofError."""
    return of_block(presets.resolve(name).sweep, f"{name}: sweep.")


def of_block(block: Mapping[str, Any], place: str = "") -> dict[str, Any]:
    """Return the parameters of `gputui sweep` in a block. Messages begin with `place`. Raises ProofError."""
    made: dict[str, Any] = {}
    for key, given in block.items():
        if key == OVER:
            if not isinstance(given, dict) or not given:
                raise ProofError(
                    f"{place}{OVER}: give options with their values, such as {{learning_rate: [1e-3, 3e-3]}}"
                )
            made[OVER] = tuple(
                f"{name}={','.join(map(_quoted, values)) if isinstance(values, list) else text_of(values)}"
                for name, values in given.items()
            )
            continue
        if key not in ENTRIES:
            near = nearest(key, [OVER, *ENTRIES])
            meant = f", did you mean {near}?" if near else f"; there are {', '.join([OVER, *ENTRIES])}"
            raise ProofError(f"{place}{key}: there is no such entry{meant}")
        made[ENTRIES[key][0]] = _checked(place, key, given)
    if made.get("sampler", SAMPLERS[0]) not in SAMPLERS:
        raise ProofError(f"{place}sampler: give {', '.join(SAMPLERS[:-1])} or {SAMPLERS[-1]}")
    return made


def _quoted(value: Any) -> str:
    return json.dumps(value) if isinstance(value, str) and "," in value else text_of(value)


def _checked(place: str, key: str, given: Any) -> Any:
    """Return the value of an entry. Raises ProofError if it has another type, or is too low or too large."""
    _, kind, least, most = ENTRIES[key]
    accepted: tuple[type, ...] = (int, float) if kind is float else (kind,)
    is_wrong = isinstance(given, bool) or not isinstance(given, accepted)
    if is_wrong or (kind is not str and not least <= given <= most):
        ends = f"from {least:g} to {most:,.0f}"
        words = "a text" if kind is str else f"a {'whole ' if kind is int else ''}number {ends}"
        raise ProofError(f"{place}{key}: {text_of(given)} does not fit: give {words}")
    return given


AT_RANDOM = 10  # first settings, from which TPE then learns: Optuna's own default


def proposed(
    axes: Sequence[Axis], seed: int, number: int, results: Iterable[tuple[Mapping[str, Any], float]], higher: bool
) -> dict[str, Any]:
    """Return the setting `number` (from 0) by TPE from earlier `results`, the same for the same arguments."""
    import optuna  # only a sweep that asks for it loads it
    from optuna.distributions import CategoricalDistribution, FloatDistribution  # the same

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    # the number of a value in the list, or the share of the range
    distributions = {
        axis.key: CategoricalDistribution(range(len(axis.values))) if axis.values else FloatDistribution(0.0, 1.0)
        for axis in axes
    }
    study = optuna.create_study(
        direction="maximize" if higher else "minimize",
        sampler=optuna.samplers.TPESampler(seed=seed + number, n_startup_trials=AT_RANDOM),
    )
    for changes, metric in results:
        params = {
            axis.key: list(axis.values).index(value) if axis.values else share_of(axis, value)
            for axis in axes
            for value in [changes[axis.key]]
        }
        study.add_trial(optuna.trial.create_trial(params=params, distributions=distributions, value=metric))
    params = study.ask(distributions).params
    places = ((axis, params[axis.key]) for axis in axes)
    return {axis.key: axis.values[place] if axis.values else value_at(axis, place) for axis, place in places}
