"""The commands that measure what limits and what changes the speed: `gputui diagnose`, `ab` and `scaling`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from ...engine.trials import KEEPS, LEAST_REPEATS, TRIAL_SECONDS
from ..base.errors import DONE, Refused, clean, complain
from . import completion, is_called
from .measuring import FollowOptions, follow_options, measure, resume_option
from .shared_options import MINUTES, SECONDS, given, preset_option, settings_option

if is_called():
    from ...engine import diagnosis, presets
    from ...engine import runs as run_folders
    from ...engine.files.values import to_json
    from ...engine.profile import reports
    from ...engine.profile.reports import ProfileError
    from ...engine.proof import request
    from ...engine.runs import Run, event_reading, run_cluster
    from ...engine.runs.launched_with import options_of
    from ...engine.scaling import rounds
    from ...engine.trials import report
    from ..printing.proof import show
    from ..wording.run import error_text, next_step


@click.command("ab")
@preset_option("The preset to measure with and without the change.", required=True)
@settings_option("The change to measure; several settings are measured as one change.")
@click.option("--repeats", type=click.IntRange(min=LEAST_REPEATS), default=LEAST_REPEATS, show_default=True,
    help="Number of pairs of trials.")  # fmt: skip
@click.option(
    "--seconds", type=SECONDS, default=TRIAL_SECONDS, show_default=True, help="Measured seconds of each trial."
)
@follow_options(json="Print the proof as one JSON object on stdout, at the end.")
def ab(preset: str, settings: Sequence[str], repeats: int, seconds: float, how: FollowOptions) -> int:
    """The trials alternate, and each is a new process. The result says whether the change is faster beyond chance.

    \b
    gputui ab --preset quickstart --set steps_per_execution=16
    gputui ab --preset mine.yaml --set device.visible=none         GPU against CPU
    """
    return measure(request.of_change(preset, settings, repeats=repeats, measure_seconds=seconds), how)


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
@follow_options(output="With --apply: save the improved preset to FILE.",
    json="Print the diagnosis, or the proof, as one JSON object.")  # fmt: skip
@click.pass_context
def diagnose(
    context: click.Context, run: str | None, preset: str | None, settings: Sequence[str], apply: bool,
    repeats: int | None, seconds: float | None, minutes: float | None, profile: bool, how: FollowOptions,
) -> int:  # fmt: skip
    """Shows the verdict on a run or a preset, the evidence for it, and the changes of options that could help.

    \b
    gputui diagnose latest                                       what limits the latest run
    gputui diagnose --preset mine.yaml                           measured with and without its input
    gputui diagnose --preset mine.yaml --apply -o better.yaml    keep in better.yaml what is faster
    """
    if (run is None) == (preset is None):
        raise Refused("name a run, such as gputui diagnose latest, or give --preset")
    if run is not None and settings:
        raise Refused("--set needs --preset; a run already has its settings")
    if not apply:
        _refuse(context, ("minutes", "output"), "--apply")
    if preset is None:
        _refuse(context, ("profile",), "--preset; for a run, set run.profile")
    if run is not None and not apply:
        _refuse(context, OF_TRIALS, "--apply or --preset, which measure")
        return _show_run(run_folders.find(run), how.json)
    limits: dict[str, Any] = {"measure_seconds": seconds or TRIAL_SECONDS}
    limits["limit_seconds"] = None if minutes is None else 60 * minutes
    if run is not None:
        asked = request.of_run(run_folders.find(run), repeats=repeats or LEAST_REPEATS, **limits)
    else:
        kind, pairs = ("loop", {"repeats": repeats or LEAST_REPEATS}) if apply else ("diagnosis", {})
        pairs["ablation_repeats"] = 1 if apply else repeats or 1
        asked = request.of_preset(kind, str(preset), settings, profile=profile, **pairs, **limits)
    return measure(asked, how)


OF_TRIALS = ("repeats", "seconds", "minutes", "anyway", "wait", "queue")


def _refuse(context: click.Context, names: Sequence[str], with_what: str) -> None:
    for name in names:
        if context.params[name]:
            raise Refused(f"--{name} needs {with_what}")


def _show_run(run: Run, as_json: bool) -> int:
    """Print the diagnosis of a run, made from its recorded events, as text or as JSON (`as_json`)."""
    if options_of(run).get("workload.command"):
        raise Refused(f"{run.name} is a command: it has no steps to diagnose")
    events = event_reading.read_events(run.path)
    for damage in events.damage:
        complain(f"{run.name}: {damage}")
    findings = diagnosis.of_run(run, events)
    if as_json:
        print(to_json(asdict(findings) | _profile(run), indent=1))
        return DONE
    show(report.diagnosis(asdict(findings)))
    if run.file("profile").is_dir():
        print()
        show_profile(run)
    on_several, unknown = run_cluster.of_run(run) is not None, findings.verdict == "undecided" and not findings.evidence
    too_soon = unknown and (run.result or {}).get("outcome") == "ok" and not on_several
    if any(remedy["changes"] for remedy in findings.remedies) and request.can_be_trained(run):
        by_hand = f"start all workers with one of them (--set), and compare the runs: gputui compare {run.name} NEW_RUN"
        by_command = f"gputui diagnose {run.name} --apply measures them, and keeps what helps"
        print(f"\n{by_hand if on_several else by_command}")
    elif too_soon and request.can_be_trained(run):
        print(f"\ngputui diagnose {run.name} --apply measures the same training for longer, and tries what could help")
    elif findings.verdict == "undecided" and (error := (run.result or {}).get("error")):
        print(clean(f"\n{error_text(error, run.name)}"))
    elif following := next_step(findings):
        print(f"\n{following}")
    return DONE


def _profile(run: Run) -> dict[str, Any]:
    if not run.file("profile").is_dir():
        return {"profile": None, "profile_missing": ""}
    try:
        return {"profile": asdict(reports.read(run)), "profile_missing": ""}
    except ProfileError as fault:
        return {"profile": None, "profile_missing": " ".join(str(fault).split())}


def show_profile(run: Run) -> None:
    """Print the run's profile as lines, or the reason why it cannot be read."""
    try:
        lines = list(reports.lines(reports.read(run)))
    except ProfileError as fault:
        lines = str(fault).splitlines()
    print("\n".join(map(clean, lines)))


MOST_REPLICAS, MOST_COPIES = 1024, 16


@click.command("scaling")
@preset_option("The preset whose scaling to measure.")
@settings_option()
@click.option("--replicas", metavar="1,2,4",
    help="Numbers of replicas; 1 is always measured (default: 1, 2, 4 ... and all devices).")  # fmt: skip
@click.option("--copies", metavar="1,2,3",
    help="Train so many copies at once on one GPU instead: whether several runs on it pay. 1 is "
    "always measured.")  # fmt: skip
@click.option("--keep", type=click.Choice(KEEPS), default=KEEPS[0], show_default=True,
    help="The batch size that stays the same: that of each replica (weak scaling), or the global "
    "one (strong scaling).")  # fmt: skip
@click.option("--repeats", type=click.IntRange(min=LEAST_REPEATS), metavar="N", default=LEAST_REPEATS,
    show_default=True, help="Rounds of one trial for each number.")  # fmt: skip
@click.option("--seconds", type=SECONDS, metavar="SECONDS", default=TRIAL_SECONDS, show_default=True,
    help="Measured seconds of each trial.")  # fmt: skip
@click.option("--minutes", type=MINUTES, metavar="MINUTES", help="Time limit: begin no round that would take longer.")
@follow_options(output="With --copies: save the preset with the number that pays.",
    json="Print the measurement as one JSON object, at the end.",
    markdown="Print a report in Markdown, at the end.")  # fmt: skip
@resume_option("scaling")
@click.pass_context
def scaling(
    context: click.Context, /, preset: str, settings: Sequence[str], replicas: str | None, copies: str | None,
    keep: str, repeats: int, seconds: float, minutes: float | None, how: FollowOptions,
) -> int:  # fmt: skip
    """Each GPU trains one replica of the model. Shows the speed-up and the efficiency with 1, 2, 4 ... replicas. With
    --copies, whether several trainings on one GPU at once get more done than one after the other.

    \b
    gputui scaling --preset mine.yaml --replicas 1,2,4,8
    gputui scaling --preset mine.yaml --keep global                strong scaling
    gputui scaling --preset mine.yaml --copies 1,2,3               several runs on one GPU
    gputui scaling --preset quickstart --set logical_devices=2     a test on the CPU
    """
    numbers, at_once = _counts(replicas, "replicas", MOST_REPLICAS), _counts(copies, "copies", MOST_COPIES)
    if at_once and {"replicas", "keep"} & set(given(context)):
        raise Refused("--copies trains several copies of one training on one device: leave out --replicas and --keep")
    if how.output is not None and not at_once:
        raise Refused("-o saves the preset with the number of runs on a GPU that pays: it needs --copies")
    asked = rounds.requested(
        presets.resolve(preset, settings), numbers, keep, minutes, at_once, measure_seconds=seconds, repeats=repeats
    )
    if how.output is not None and asked.scaling is not None and asked.scaling.shared:
        raise Refused("-o saves the number of runs on a GPU that pays, and this preset trains on the CPU: leave it out")
    return measure(asked, how)


def _counts(text: str | None, name: str, most: int) -> list[int]:
    """Return the numbers in a text such as `1,2,4`, the value of the option `name`. The list is empty without a text.
    Raises Refused for other texts, and for numbers outside 1 to `most`."""
    try:
        numbers = [int(word) for word in text.split(",")] if text else []
    except ValueError:
        numbers = [0]
    if any(count < 1 or count > most for count in numbers):
        raise Refused(f"--{name} takes numbers of {name} from 1 to {most}, such as 1,2,4, not {text!r}")
    return numbers
