"""The commands that measure presets, declared for the command line: `ab`, `diagnose`, `tune`, `fit-batch`, `sweep`,
`scaling` and `proof`; and `prepare`, which makes their input faster."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import click

from ...engine.prepare.manifest import DTYPES, FORMATS, MOST_SHARDS, SHARD_BYTES
from ...engine.trials import KEEPS, LEAST_REPEATS, SAMPLERS, STAGES, TRIAL_SECONDS
from ...engine.units import size
from .. import commands
from ..base.errors import Refused
from . import completion
from .shared_options import (
    ANYWAY_HELP,
    MINUTES,
    SECONDS,
    WAIT_HELP,
    given,
    one_of,
    preset_option,
    queue_options,
    search_limits,
    settings_option,
)


@click.command("ab")
@preset_option("The preset to measure with and without the change.", required=True)
@settings_option("The change to measure; several settings are measured as one change.")
@click.option("--repeats", type=click.IntRange(min=LEAST_REPEATS), default=LEAST_REPEATS, show_default=True,
              help="Number of pairs of trials.")  # fmt: skip
@click.option(
    "--seconds", type=SECONDS, default=TRIAL_SECONDS, show_default=True, help="Measured seconds of each trial."
)
@click.option("--json", "as_json", is_flag=True, help="Print the proof as one JSON object on stdout, at the end.")
@click.option("--wait", is_flag=True, help=WAIT_HELP)
@click.option("--anyway", is_flag=True, help=ANYWAY_HELP)
@queue_options
@click.pass_context
def ab(
    context: click.Context,
    preset: str,
    settings: Sequence[str],
    repeats: int,
    seconds: float,
    as_json: bool,
    wait: bool,
    anyway: bool,
    queue: bool,
    after: str | None,
) -> None:
    """Measure a preset with and without a change.

    The trials alternate, and each is a new process. The result says whether the change is faster beyond chance.

    \b
    gputui ab --preset quickstart --set steps_per_execution=16
    gputui ab --preset mine.yaml --set device.visible=none         GPU against CPU
    """
    context.exit(commands.proof.measure_change(preset, settings, repeats, seconds, as_json, anyway, wait, queue, after))


@click.command("diagnose")
@click.argument("run", required=False, shell_complete=completion.run)
@preset_option("Measure this preset, with and without its input.")
@settings_option()
@click.option("--apply", "apply", is_flag=True, help="Try the remedies one by one, and keep what is faster.")
@click.option("--repeats", type=click.IntRange(min=1),
              help=f"Number of pairs of trials (default: 1; for a remedy {LEAST_REPEATS}).")  # fmt: skip
@click.option("--seconds", type=SECONDS, help=f"Measured seconds of each trial (default: {TRIAL_SECONDS:g}).")
@click.option("--minutes", type=MINUTES, help="Time limit: start no remedy that would take longer.")
@click.option("--profile", is_flag=True, help="With --preset: also profile 20 steps, and read the profile with XProf.")
@click.option("-o", "--output", metavar="FILE", help="With --apply: save the improved preset to FILE.")
@click.option("--json", "as_json", is_flag=True, help="Print the diagnosis, or the proof, as one JSON object.")
@click.option("--wait", is_flag=True, help=WAIT_HELP)
@click.option("--anyway", is_flag=True, help=ANYWAY_HELP)
@queue_options
@click.pass_context
def diagnose(
    context: click.Context, /, run: str | None, preset: str | None, settings: Sequence[str], **options: Any
) -> None:
    """Say what limits the speed; with --apply, make it faster.

    Shows the verdict on a run or a preset, the evidence for it, and the changes of options that could help.

    \b
    gputui diagnose latest                                       what limits the latest run
    gputui diagnose --preset mine.yaml                           measured with and without its input
    gputui diagnose --preset mine.yaml --apply -o better.yaml    keep in better.yaml what is faster
    """
    context.exit(commands.proof.diagnose(run, preset, settings, options))


@click.command("tune")
@preset_option("The preset to make faster.")
@settings_option()
@click.option("--only", metavar="NAME", multiple=True, help=f"Search only this; may be repeated: {', '.join(STAGES)}.")
@click.option("--precision", "precisions", metavar="POLICY", multiple=True,
              help="A precision to try: float32, mixed_float16 or mixed_bfloat16; may be repeated (default: those for "
              "which the devices have instructions).")  # fmt: skip
@click.option("--wide", metavar="[after|instead]", is_flag=False, flag_value="after",
              type=click.Choice(("after", "instead")),
              help="Let Optuna combine options, after the ordered search (the default) or instead of it, written as "
              "--wide=instead; needs Optuna: pip install 'optuna>=5,<6'.")  # fmt: skip
@click.option("--study", metavar="FILE_OR_URL",
    help="With --wide: a shared file or a database; several machines search together in one study.")  # fmt: skip
@click.option("--name", "study_name", metavar="STUDY", help="With --study: its name there (default: the preset's).")
@click.option("--learning-rate-test", "rate_test", is_flag=True,
    help="Do not search: find a learning rate by a short training in which it rises, and prove on new seeds whether "
    "the preset learns better with it.")  # fmt: skip
@click.option(
    "--rates", metavar="LOW:HIGH", help="With --learning-rate-test: the rates of the ramp (default: 1e-6:10)."
)
@click.option("--ramp-steps", type=click.IntRange(min=1), metavar="N",
    help="With --learning-rate-test: steps of the ramp, a few dozen for each power of ten (default: 300).")  # fmt: skip
@search_limits
@queue_options
@click.pass_context
def tune(context: click.Context, /, preset: str | None, settings: Sequence[str], **options: Any) -> None:
    """Search for the fastest settings of a preset on this machine.

    The gain is then proved in pairs of trials, with and without the settings that were found.

    \b
    gputui tune --preset mine.yaml --minutes 20 -o fastest.yaml
    gputui tune --preset quickstart --only batch_size --only input
    gputui tune --resume                                 continue after an interruption
    gputui tune --preset mine.yaml --learning-rate-test -o tuned.yaml
    """
    context.exit(commands.proof.tune(preset, settings, options, given(context)))


@click.command("fit-batch")
@preset_option("The preset whose batch size to find.")
@settings_option()
@search_limits
@queue_options
@click.pass_context
def fit_batch(context: click.Context, /, preset: str | None, settings: Sequence[str], **options: Any) -> None:
    """Find the fastest batch size, and the largest that fits.

    Only the batch size is changed; `gputui tune` searches the other options, too.

    \b
    gputui fit-batch --preset mine.yaml --minutes 5 -o fitted.yaml
    gputui fit-batch --preset mine.yaml --learning-rate linear --warmup-steps 500
    """
    of_batch = {"only": ("batch_size",), "precisions": ()}
    context.exit(commands.proof.tune(preset, settings, options | of_batch, given(context)))


@click.command("sweep")
@preset_option("The preset to train with many settings.")
@settings_option()
@click.option("--over", metavar="KEY=VALUES", multiple=True,
    help="An option and its values: 1e-3,3e-3 or a range 0..0.1 (0..0.1:5: five values of it); may be repeated. "
    "args.NAME is a value of your own code.")  # fmt: skip
@click.option(
    "--metric",
    metavar="NAME",
    default="val_loss",
    show_default=True,
    help="The figure of an epoch that decides; NAME:min or NAME:max if its name does not show which way is better.",
)
@click.option(
    "--seeds", type=click.IntRange(1, 100), metavar="N", default=1, show_default=True, help="Seeds of each setting."
)
@click.option("--minutes", type=MINUTES, metavar="MINUTES", default=60.0, show_default=True,
              help="Time for everything, also the proof. With --resume: the additional minutes.")  # fmt: skip
@click.option("--sampler", type=click.Choice(SAMPLERS), default=SAMPLERS[0], show_default=True,
    help="Train all combinations, settings that are drawn, or those that TPE proposes, which needs Optuna: pip install "
    "'optuna>=5,<6'.")  # fmt: skip
@click.option(
    "--trials", "most_trials", type=click.IntRange(2, 10_000), metavar="N", help="Settings that a sampler draws."
)
@click.option(
    "--halving",
    "halve_from",
    type=click.IntRange(min=0),
    metavar="EPOCH",
    help="End bad trials early: after this epoch, and after 3, 9 ... times as many, the best third goes on. 0: none.",
)
@click.option("--proof-seeds", type=click.IntRange(0, 100), metavar="N", default=5, show_default=True,
              help="Fresh seeds with which the best settings are trained again; 0 for no proof.")  # fmt: skip
@click.option("--finalists", type=click.IntRange(2, 20), metavar="N", default=2, show_default=True,
              help="Settings in the proof: the best one and its rivals.")  # fmt: skip
@click.option("--parallel", type=click.IntRange(1, 1000), metavar="N",
              help="Trials at once (default: as many as this machine has GPUs for).")  # fmt: skip
@click.option("--study", metavar="FILE_OR_URL",
    help="A file on a shared folder, or a database: all machines that are given it carry out the sweep together. Needs "
    "Optuna: pip install 'optuna>=5,<6'.")  # fmt: skip
@click.option(
    "--name", "study_name", metavar="SWEEP", help="With --study: the name of the sweep there (default: the preset's)."
)
@click.option(
    "--resume",
    metavar="[SWEEP]",
    is_flag=False,
    flag_value="latest",
    help="Continue a sweep that was stopped or killed (default: the latest); with --minutes also one that has ended.",
)
@click.option("-o", "--output", metavar="FILE", help="Save the preset with the best settings to FILE.")
@one_of(json="Print the sweep as one JSON object, at the end.", markdown="Print a report in Markdown, at the end.")
@click.option("--anyway", is_flag=True, help="Do not wait for trainings outside of the queue that use the CPU.")
@queue_options
@click.pass_context
def sweep(context: click.Context, /, preset: str | None, settings: Sequence[str], **options: Any) -> None:
    """Find the settings that learn best, and prove it.

    Each trial is a run in the queue. The best setting and its rival are then trained again on fresh seeds. With --queue
    the sweep itself waits for its turn, and its time begins then.

    \b
    gputui sweep --preset mine.yaml --over learning_rate=1e-3,3e-3 --over weight_decay=0..0.1 --seeds 2
    gputui sweep --preset mine.yaml --over args.units=64,128 --metric val_accuracy -o best.yaml
    gputui sweep --resume                                continue after an interruption
    """
    context.exit(commands.proof.sweep(preset, settings, options, given(context)))


@click.command("scaling")
@preset_option("The preset whose scaling to measure.")
@settings_option()
@click.option("--replicas", metavar="1,2,4",
              help="Numbers of replicas; 1 is always measured (default: 1, 2, 4 ... and all devices).")  # fmt: skip
@click.option(
    "--copies",
    metavar="1,2,3",
    help="Train so many copies at once on one GPU instead: whether several runs on it pay. 1 is always measured.",
)
@click.option(
    "--keep",
    type=click.Choice(KEEPS),
    default=KEEPS[0],
    show_default=True,
    help="The batch size that stays the same: that of each replica (weak scaling), or the global one (strong scaling).",
)
@click.option("--repeats", type=click.IntRange(min=LEAST_REPEATS), metavar="N", default=LEAST_REPEATS,
              show_default=True, help="Rounds of one trial for each number.")  # fmt: skip
@click.option("--seconds", type=SECONDS, metavar="SECONDS", default=TRIAL_SECONDS, show_default=True,
              help="Measured seconds of each trial.")  # fmt: skip
@click.option("--minutes", type=MINUTES, metavar="MINUTES", help="Time limit: begin no round that would take longer.")
@click.option("--resume", metavar="[PROOF]", is_flag=False, flag_value="latest",
              help="Continue a measurement that was stopped or killed (default: the latest).")  # fmt: skip
@click.option("-o", "--output", metavar="FILE", help="With --copies: save the preset with the number that pays.")
@one_of(
    json="Print the measurement as one JSON object, at the end.", markdown="Print a report in Markdown, at the end."
)
@click.option("--wait", is_flag=True, help=WAIT_HELP)
@click.option("--anyway", is_flag=True, help=ANYWAY_HELP)
@queue_options
@click.pass_context
def scaling(context: click.Context, /, preset: str | None, settings: Sequence[str], **options: Any) -> None:
    """Measure how the speed grows with the number of GPUs.

    Each GPU trains one replica of the model. Shows the speed-up and the efficiency with 1, 2, 4 ... replicas. With
    --copies, whether several trainings on one GPU at once get more done than one after the other.

    \b
    gputui scaling --preset mine.yaml --replicas 1,2,4,8
    gputui scaling --preset mine.yaml --keep global                strong scaling
    gputui scaling --preset mine.yaml --copies 1,2,3               several runs on one GPU
    gputui scaling --preset quickstart --set logical_devices=2     a test on the CPU
    """
    context.exit(commands.proof.scaling(preset, settings, options, given(context)))


@click.command("proof")
@click.argument("names", metavar="[PROOF | rm PROOF...]", nargs=-1, shell_complete=completion.proof)
@one_of(json="Print one JSON object.", markdown="Print a report in Markdown.")
@click.option("-o", "--output", metavar="FILE", help="Save the improved preset to FILE.")
@click.option("--stop", is_flag=True, help="Stop the proof and its current trial gracefully; a second time, at once.")
@click.option("--yes", is_flag=True, help="With rm: delete without asking.")
@click.pass_context
def proof(
    context: click.Context, names: Sequence[str], form: str | None, output: str | None, stop: bool, yes: bool
) -> None:
    """List proofs, show one with all its trials, or delete some.

    Proofs are what ab, tune, fit-batch, sweep, scaling and diagnose --preset have measured.

    \b
    gputui proof latest              show the latest
    gputui proof rm 20260921-1405    delete proofs for good, with their trials
    """
    if names[:1] == ("rm",):
        if form or output or stop:
            raise Refused("rm goes only with --yes")
        context.exit(commands.proof.remove_proofs(names[1:], yes))
    if yes or len(names) > 1:
        raise Refused("--yes goes only with rm" if yes else "show one proof at a time; rm takes several")
    name = next(iter(names), None)
    if name is None and (form == "markdown" or output or stop):
        raise Refused("name a proof; gputui proof lists them")
    if sum(map(bool, (form, output, stop))) > 1:
        raise Refused("use only one of --json, --markdown, -o and --stop")
    if name is None:
        commands.proof.show_proofs(as_json=form == "json")
    else:
        commands.proof.show_proof(name, form or "table", output, stop)


def _height_and_width(
    _context: click.Context, _parameter: click.Parameter, value: str | None
) -> tuple[int, int] | None:
    if value is None:
        return None
    match = re.fullmatch(r"([1-9]\d{0,3})[xX]([1-9]\d{0,3})", value)
    if match is None:
        raise click.BadParameter(f"{value!r} is not HEIGHTxWIDTH, such as 224x224")
    return int(match[1]), int(match[2])


@click.command("prepare")
@preset_option("The preset whose data to prepare.", required=True)
@settings_option()
@click.option(
    "-o", "--output", metavar="FOLDER", required=True, help="Write to this folder; one that was begun goes on."
)
@click.option(
    "--size", callback=_height_and_width, metavar="HEIGHTxWIDTH", help="Resize images (default: to workload.shape)."
)
@click.option(
    "--dtype",
    type=click.Choice(DTYPES),
    help="Type of the stored inputs; floats are scaled as in the training (default: uint8 for bytes, else float32).",
)
@click.option("--format", "written", type=click.Choice(FORMATS), default=FORMATS[0], show_default=True,
              help="TFRecord files, or one file with arrays.")  # fmt: skip
@click.option("--shards", type=click.IntRange(1, MOST_SHARDS), metavar="N",
              help=f"Number of files of the training part (default: about {size(SHARD_BYTES)} each).")  # fmt: skip
@click.option("--workers", type=click.IntRange(1, 256), metavar="N",
              help="Number of processes (default: as many as CPUs, fewer for little work).")  # fmt: skip
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Take at most N samples, to try it.")
@click.option("--estimate", is_flag=True, help="Only measure a sample: the time, the room, and whether it pays.")
@click.option("--json", "as_json", is_flag=True, help="Print the manifest, or the estimate, as JSON on stdout.")
@click.pass_context
def prepare(
    context: click.Context,
    /,
    preset: str,
    settings: Sequence[str],
    output: str,
    estimate: bool,
    as_json: bool,
    written: str,
    **options: Any,
) -> None:
    """Decode, resize and store the data of a preset once.

    Training then only reads it. FOLDER gets the files, a preset that trains on them, and a manifest that names broken
    samples, which are left out. After an interruption the same command goes on.

    \b
    gputui prepare --preset mine.yaml -o ready
    gputui prepare --preset mine.yaml -o ready --size 224x224 --dtype float16
    """
    context.exit(commands.prepare.prepare(preset, settings, output, options | {"format": written}, estimate, as_json))
