"""The results of a learning-rate range test in words, shared by all views and the report."""

from __future__ import annotations

from .. import units
from . import significance
from .record import KEY, RateTest, Trial

SOURCE = "range test: Smith, arXiv:1506.01186"


def inapplicable(why: str) -> str:
    """Return why the rate of a user's own training cannot be tested, and the remedy."""
    return (
        f"{KEY} has no effect: {why}; let `build` return no optimizer and an uncompiled model, or test the rate in "
        "your own script"
    )


def losses(test: RateTest) -> str:
    """Return the losses of the pairs in words: the mean losses, the median difference, and its spread."""
    median, spread = significance.gain_and_spread(test.gains)
    both = f"{test.of} loss {units.amount(test.loss_b)} instead of {units.amount(test.loss_a)}"
    if median is None or spread is None:
        return both
    count, lower = len(test.gains), sum(gain > 0 for gain in test.gains)
    change = units.change(_change(median))
    words = f"{both} on average, lower in {lower} of {count} pairs, median {change} (spread {units.spread(spread)})"
    if test.decision != "undecided":
        return words
    gain = significance.detectable_gain(spread, count)
    least = abs(_change(gain)) if median > 0 else gain
    more = significance.pairs_needed(median, spread)
    further = f"; --repeats {more} would tell" if more - count <= significance.MOST_MORE_PAIRS else ""
    return f"{words}; only more than {units.spread(least)} is beyond chance{further}"


def _change(gain: float) -> float:
    # 0.25 is a loss 20 % lower
    return 1 / (1 + gain) - 1


def suggestion(test: RateTest) -> str:
    return "" if test.suggested is None else f"suggested: learning_rate={test.suggested:g}: {test.reason}"


def result(test: RateTest) -> str:
    if test.decision == "no suggestion":
        return f"the range test suggests no learning rate: {test.why}"
    if test.suggested is None:
        return "stopped before there was a suggestion" if test.decision == "running" else test.why
    rates = f"learning_rate={test.suggested:g}"
    against = f"the preset's {test.before:g}"
    words = {
        "better": f"{rates} learns better than {against}",
        "worse": f"{rates} was suggested, and learns worse than {against}",
        "no difference": f"{rates} learns as well as {against}",
        "undecided": f"{rates} and {against} cannot be told apart",
        "close": f"the suggestion {rates} confirms {against}",
        "not judged": f"{rates} is suggested, and not proved to learn better than {against}",
    }
    text = words.get(test.decision, f"{rates} is suggested, and its comparison with {against} is incomplete")
    return f"{text}: {test.why}" if test.why else text


def titled(test: RateTest) -> list[tuple[str, Trial]]:
    rows = [("the ramp", trial) for trial in test.ramp]
    for trial in test.trials:
        rate = test.before if trial.side == "a" else test.suggested or test.before
        seed = "" if test.seed is None else f", seed {test.seed + trial.repeat - 1}"
        rows.append((f"rate {rate:g}{seed}", trial))
    return rows
