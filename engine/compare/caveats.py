"""Says which figures of runs cannot be compared: other models, other data, other batches, other numbers of samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..files.values import number
from ..job.environment_variables import differing
from ..plan import batches_per_pass, samples_seen
from ..runs.events import Started

Options = Mapping[str, Any]
Figures = Mapping[str, float]
SAME_SAMPLES = 0.01  # relative to the largest
ONE_REPLICA = ("single", "one_device")


def caveats(
    options: Sequence[Options],
    results: Sequence[Figures],
    states: Sequence[str],
    started: Sequence[Started | None],
    versions: Sequence[str] = (),
) -> list[str]:
    """Return sentences about figures that cannot be compared. The sequences have an item for each run, the baseline
    first; `started` may be None. `versions` are packages whose versions differ.
    """
    actual = [trainer.actual if trainer else {} for trainer in started]
    with_options = [of_run for of_run in options if of_run]
    batches = [_global_batch(*run) for run in zip(options, results, started, strict=True)]
    sentences = (
        _baseline(results[0], states[0]),
        _workload(with_options),
        _one_batch(with_options),
        _batch(batches),
        _samples(options, results, batches, started),
        _versions(versions),
        _environment(actual),
        _xla(options, actual),
    )
    return [text for text in sentences if text]


def _baseline(result: Figures, state: str) -> str:
    return "" if result else f"the baseline has no figures to compare with (it is {state})"


def _workload(options: Sequence[Options]) -> str:
    keys = [key for key in options[0] if key.startswith("workload.")] if options else []
    differing = [key for key in keys if any(of_run.get(key) != options[0][key] for of_run in options)]
    if not differing:
        return ""
    return f"the runs do different work ({', '.join(differing)}): speed and loss belong to different models or data"


def _one_batch(options: Sequence[Options]) -> str:
    if not any(of_run.get("input.one_batch") for of_run in options):
        return ""
    return "input.one_batch repeats a single batch: the speed is an upper limit, and the loss means nothing"


def _batch(batches: Sequence[float | None]) -> str:
    sizes = dict.fromkeys(batch for batch in batches if batch is not None)
    if len(sizes) < 2:
        return ""
    return f"the global batch sizes differ ({_amounts(sizes)} samples): a step is not the same amount of work"


def _samples(
    options: Sequence[Options],
    results: Sequence[Figures],
    batches: Sequence[float | None],
    started: Sequence[Started | None],
) -> str:
    """Losses and other metrics can be compared only after the same number of samples."""
    seen = {
        _seen(of_run, result["steps"], batch, begun): None
        for of_run, result, batch, begun in zip(options, results, batches, started, strict=True)
        if batch is not None and result.get("steps") and any(key.startswith("metrics.") for key in result)
    }
    if len(seen) < 2 or max(seen) - min(seen) <= SAME_SAMPLES * max(seen):
        return ""
    return f"the losses are after different numbers of samples ({_amounts(seen)}): they do not show which learns better"


def _seen(options: Options, steps: float, batch: float, started: Started | None) -> float:
    """If the size of its data is not known, all batches count as full."""
    samples = started.train_samples if started else None
    if started is None or not samples or batch < 1:
        return steps * batch
    batches = started.steps_per_epoch  # of an epoch with one pass, counted by the trainer
    if options.get("train.steps_per_epoch") or started.global_batch_size != batch:
        drops = options.get("input.drop_remainder") is True
        batches = batches_per_pass(samples, int(batch), started.replicas or 1, drops)
    return samples_seen(int(steps), samples, int(batch), batches) if batches else steps * batch


def _versions(names: Sequence[str]) -> str:
    return f"the versions of {' and '.join(names)} differ: the speed may differ for that reason" if names else ""


def _environment(actual: Sequence[Mapping[str, Any]]) -> str:
    environments = [trainer["environment"] for trainer in actual if isinstance(trainer.get("environment"), Mapping)]
    names = differing(environments)
    if not names:
        return ""
    return f"the environments differ ({', '.join(names)}): the speed may differ for that reason"


def _xla(options: Sequence[Options], actual: Sequence[Mapping[str, Any]]) -> str:
    """The same option can have another effect on another machine."""
    by_itself = [
        trainer.get("jit_compile")
        for of_run, trainer in zip(options, actual, strict=False)
        if of_run.get("compile.xla") == "auto"
    ]
    if len({choice for choice in by_itself if choice is not None}) < 2:
        return ""
    return "compile.xla is auto, and XLA has compiled only some of these runs: see xla_reason in their events"


def _global_batch(options: Options, result: Figures, started: Started | None) -> float | None:
    # of a user's own code without a result, only the trainer can have told it
    batch_of_result = result.get("global_batch_size")
    if batch_of_result is not None:
        return batch_of_result
    if options.get("workload.entry"):
        return started.global_batch_size if started else None
    batch = number(options.get("input.batch_size"))
    return batch if options.get("strategy.kind") in ONE_REPLICA else None


def _amounts(numbers: Mapping[float, None]) -> str:
    return ", ".join(f"{number:,.0f}" for number in numbers)
