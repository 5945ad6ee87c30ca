"""The settings that Optuna's TPE sampler proposes, each from a study made of the record alone: a kill loses nothing.
Deferred imports: Optuna is imported only by a sweep that asks for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..trials.sweep_record import Axis
from . import swept_values

MISSING = "--sampler tpe needs Optuna, which is not installed; pip install 'optuna>=5,<6' adds it"
AT_RANDOM = 10  # first settings, from which TPE then learns: Optuna's own default


def proposed(
    axes: Sequence[Axis], seed: int, number: int, results: Iterable[tuple[Mapping[str, Any], float]], higher: bool
) -> dict[str, Any]:
    """Return the setting `number` (from 0) of a search by TPE, the same for the same arguments. `results` are settings
    with their metrics, the `higher` the better or not.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    distributions = {axis.key: _distribution(axis) for axis in axes}
    study = optuna.create_study(
        direction="maximize" if higher else "minimize",
        sampler=optuna.samplers.TPESampler(seed=seed + number, n_startup_trials=AT_RANDOM),
    )
    for changes, metric in results:
        params = {axis.key: _place(axis, changes[axis.key]) for axis in axes}
        study.add_trial(optuna.trial.create_trial(params=params, distributions=distributions, value=metric))
    params = study.ask(distributions).params
    return {axis.key: _value(axis, params[axis.key]) for axis in axes}


def _distribution(axis: Axis) -> Any:
    # the number of a value in the list, or the share of the range
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    return CategoricalDistribution(range(len(axis.values))) if axis.values else FloatDistribution(0.0, 1.0)


def _place(axis: Axis, value: Any) -> Any:
    return list(axis.values).index(value) if axis.values else swept_values.share_of(axis, value)


def _value(axis: Axis, place: Any) -> Any:
    return axis.values[place] if axis.values else swept_values.value_at(axis, place)
