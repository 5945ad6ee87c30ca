"""The commands that search: `gputui tune` for the fastest settings or a learning rate, `gputui fit-batch` for the batch
size alone, and `gputui sweep` for the settings that learn best."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from ...engine.trials import LEAST_REPEATS, SAMPLERS, STAGES, TRIAL_SECONDS
from ..base.errors import Refused
from . import is_called
from .measuring import FOLLOWING, FollowOptions, follow_options, measure, resume_option
from .shared_options import MINUTES, SECONDS, given, preset_option, settings_option, together

if is_called():
    from ...engine import presets
    from ...engine.queue import adding
    from ...engine.sweep import sweep_request, swept_values
    from ...engine.trials.record import Limits, RateSettings
    from ...engine.tune import tune_request

# Options that are allowed together with --learning-rate-test.
OF_TEST = FOLLOWING | {"rate_test", "rates", "ramp_steps", "preset", "settings", "minutes", "repeats"}


search_limits = together(
    click.option("--minutes", type=MINUTES, metavar="MINUTES", default=10.0,
                 show_default=True, help="Time for everything: the trials, the losses and the proof. "
                 "With --resume: the additional minutes."),
    click.option("--leave", metavar="KEY", multiple=True,
                 help="An option that keeps its value, such as input.shuffle; may be repeated."),
    click.option("--largest-batch", type=click.IntRange(min=1), metavar="N",
                 help="Largest global batch (default: a tenth of the samples of a pass)."),
    click.option("--memory-gb", type=click.FloatRange(min=0, min_open=True), metavar="GB",
                 help="Most memory that the training may take (default: all that is available)."),
    click.option("--learning-rate", type=click.Choice(("keep", "linear", "sqrt")), default="keep",
                 show_default=True,
                 help="Scale the learning rate with the batch size: linear (for sgd) or sqrt (for adam)."),
    click.option("--warmup-steps", type=click.IntRange(min=0), metavar="N",
                 help="With a scaled learning rate: the steps in which it rises from 0."),
    click.option("--allow-worse-loss", is_flag=True,
                 help="Choose the fastest settings even if their loss is clearly worse."),
    click.option("--repeats", type=click.IntRange(min=LEAST_REPEATS), metavar="N", default=LEAST_REPEATS,
                 show_default=True, help="Pairs of trials that prove the gain at the end."),
    click.option("--seconds", type=SECONDS, metavar="SECONDS", default=TRIAL_SECONDS, show_default=True,
                 help="Measured seconds of each trial of these pairs."),
    click.option("--dry-run", is_flag=True,
                 help="Only predict what memory the preset takes and the largest batch, from two short trials."),
    follow_options(output="Save the best preset to FILE.",
                   json="Print the search as one JSON object, at the end."),
    resume_option("tune", FOLLOWING | {"minutes"}),
)  # fmt: skip


@click.command("tune")
@preset_option("The preset to make faster.")
@settings_option()
@click.option("--only", metavar="NAME", multiple=True, help=f"Search only this; may be repeated: {', '.join(STAGES)}.")
@click.option("--precision", "precisions", metavar="POLICY", multiple=True,
    help="A precision to try: float32, mixed_float16 or mixed_bfloat16; may be repeated (default: "
    "those for which the devices have instructions).")  # fmt: skip
@click.option("--wide", metavar="[after|instead]", is_flag=False, flag_value="after",
    type=click.Choice(("after", "instead")),
    help="Let Optuna combine options, after the ordered search (the default) or instead of it, "
    "written as --wide=instead; needs Optuna: pip install 'optuna>=5,<6'.")  # fmt: skip
@click.option("--study", metavar="FILE_OR_URL",
    help="With --wide: a shared file or a database; several machines search together in one study.")  # fmt: skip
@click.option("--name", "study_name", metavar="STUDY", help="With --study: its name there (default: the preset's).")
@click.option("--learning-rate-test", "rate_test", is_flag=True,
    help="Do not search: find a learning rate by a short training in which it rises, and prove on "
    "new seeds whether the preset learns better with it.")  # fmt: skip
@click.option(
    "--rates", metavar="LOW:HIGH", help="With --learning-rate-test: the rates of the ramp (default: 1e-6:10)."
)
@click.option("--ramp-steps", type=click.IntRange(min=1), metavar="N",
    help="With --learning-rate-test: steps of the ramp, a few dozen for each power of ten (default: 300).")  # fmt: skip
@search_limits
@click.pass_context
def tune(
    context: click.Context,
    /,
    how: FollowOptions,
    rate_test: bool,
    rates: str | None,
    ramp_steps: int | None,
    **options: Any,
) -> int:
    """The gain is then proved in pairs of trials, with and without the settings that were found.

    \b
    gputui tune --preset mine.yaml --minutes 20 -o fastest.yaml
    gputui tune --preset quickstart --only batch_size --only input
    gputui tune --resume                                 continue after an interruption
    gputui tune --preset mine.yaml --learning-rate-test -o tuned.yaml
    """
    if not rate_test and (rates is not None or ramp_steps is not None):
        raise Refused("--rates and --ramp-steps go with --learning-rate-test")
    if not rate_test:
        return _search(how, **options)
    if others := [name for name in given(context) if name not in OF_TEST]:
        raise Refused(f"--{others[0].replace('_', '-')} does not go with --learning-rate-test")
    values: dict[str, Any] = {} if ramp_steps is None else {"steps": ramp_steps}
    if rates is not None:
        low, _, high = rates.partition(":")
        try:
            values |= {"low": float(low), "high": float(high)}
        except ValueError:
            raise Refused(f"--rates takes two rates such as 1e-6:10, not {rates!r}") from None
    test = RateSettings(**values, minutes=options["minutes"])
    preset = presets.resolve(options["preset"], options["settings"])
    return measure(tune_request.range_test(preset, test, repeats=options["repeats"]), how)


@click.command("fit-batch")
@preset_option("The preset whose batch size to find.")
@settings_option()
@search_limits
def fit_batch(how: FollowOptions, **options: Any) -> int:
    """Only the batch size is changed; `gputui tune` searches the other options, too.

    \b
    gputui fit-batch --preset mine.yaml --minutes 5 -o fitted.yaml
    gputui fit-batch --preset mine.yaml --learning-rate linear --warmup-steps 500
    """
    return _search(how, only=("batch_size",), precisions=(), **options)


def _search(
    how: FollowOptions, *, preset: str, settings: Sequence[str], repeats: int, seconds: float, only: Sequence[str],
    leave: Sequence[str], precisions: Sequence[str], memory_gb: float | None, **limits: Any,
) -> int:  # fmt: skip
    if limits["dry_run"] and how.output is not None:
        raise Refused("--dry-run only predicts the memory: there is nothing to save with -o")
    within = Limits(
        only=list(only) or list(STAGES),
        leave=list(leave),
        memory_bytes=None if memory_gb is None else round(memory_gb * 1e9),
        precisions=list(precisions) or None,
        **limits,
    )
    opened = presets.resolve(preset, settings)
    asked = tune_request.of_preset(opened, within, repeats=repeats, measure_seconds=seconds)
    return measure(asked, how)


GRID = SAMPLERS[0]


@click.command("sweep")
@preset_option("The preset to train with many settings.")
@settings_option()
@click.option("--over", metavar="KEY=VALUES", multiple=True,
    help="An option and its values: 1e-3,3e-3 or a range 0..0.1 (0..0.1:5: five values of it); may "
    "be repeated. args.NAME is a value of your own code.")  # fmt: skip
@click.option("--metric", metavar="NAME", default="val_loss", show_default=True,
    help="The figure of an epoch that decides; NAME:min or NAME:max if its name does not show which "
    "way is better.")  # fmt: skip
@click.option(
    "--seeds", type=click.IntRange(1, 100), metavar="N", default=1, show_default=True, help="Seeds of each setting."
)
@click.option("--minutes", type=MINUTES, metavar="MINUTES", default=60.0, show_default=True,
    help="Time for everything, also the proof. With --resume: the additional minutes.")  # fmt: skip
@click.option("--sampler", type=click.Choice(SAMPLERS), default=SAMPLERS[0], show_default=True,
    help="Train all combinations, settings that are drawn, or those that TPE proposes, which needs "
    "Optuna: pip install 'optuna>=5,<6'.")  # fmt: skip
@click.option(
    "--trials", "most_trials", type=click.IntRange(2, 10_000), metavar="N", help="Settings that a sampler draws."
)
@click.option("--halving", "halve_from", type=click.IntRange(min=0), metavar="EPOCH",
    help="End bad trials early: after this epoch, and after 3, 9 ... times as many, the best third "
    "goes on. 0: none.")  # fmt: skip
@click.option("--proof-seeds", type=click.IntRange(0, 100), metavar="N", default=5, show_default=True,
    help="Fresh seeds with which the best settings are trained again; 0 for no proof.")  # fmt: skip
@click.option("--finalists", type=click.IntRange(2, 20), metavar="N", default=2, show_default=True,
    help="Settings in the proof: the best one and its rivals.")  # fmt: skip
@click.option("--parallel", type=click.IntRange(1, 1000), metavar="N",
    help="Trials at once (default: as many as this machine has GPUs for).")  # fmt: skip
@click.option("--study", metavar="FILE_OR_URL",
    help="A file on a shared folder, or a database: all machines that are given it carry out the "
    "sweep together. Needs Optuna: pip install 'optuna>=5,<6'.")  # fmt: skip
@click.option(
    "--name", "study_name", metavar="SWEEP", help="With --study: the name of the sweep there (default: the preset's)."
)
@follow_options(output="Save the preset with the best settings to FILE.",
    json="Print the sweep as one JSON object, at the end.", markdown="Print a report in Markdown, at the end.",
    wait=False, anyway="Do not wait for trainings outside of the queue that use the CPU.")  # fmt: skip
@resume_option("sweep", FOLLOWING - {"anyway"} | {"minutes"}, "--preset NAME --over KEY=VALUES")
@click.pass_context
def sweep(context: click.Context, /, preset: str, settings: Sequence[str], how: FollowOptions, **options: Any) -> int:
    """Each trial is a run in the queue. The best setting and its rival are then trained again on fresh seeds. With
    --queue the sweep itself waits for its turn, and its time begins then.

    \b
    gputui sweep --preset mine.yaml --over learning_rate=1e-3,3e-3 --over weight_decay=0..0.1 --seeds 2
    gputui sweep --preset mine.yaml --over args.units=64,128 --metric val_accuracy -o best.yaml
    gputui sweep --resume                                continue after an interruption
    """
    named = given(context)
    block = swept_values.parameters(preset)
    if options["sampler"] == GRID and "sampler" in named:
        block.pop("most_trials", None)  # of the block's sampler
    options |= {name: value for name, value in block.items() if name not in named}
    asked = sweep_request.of_preset(presets.resolve(preset, settings), anyway=how.anyway, **options)
    return measure(asked, how, trains_on=adding.machine())
