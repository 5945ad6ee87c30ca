"""The actions on proofs, searches and measurements of scaling. The disk is accessed in threads.
Deferred imports: proofs and the machine are needed only when one is started."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ....engine import runs
from ....engine.files.writing import write_atomically
from ....engine.job import this_machine
from ....engine.plan import LEAST_STEPS
from ....engine.proof import folder as proof_folder
from ....engine.proof import improved_preset, request
from ....engine.proof.folder import Proof
from ....engine.runs import Run
from ....engine.runs.events import Diagnosis
from ....engine.trials import KEEPS, kinds, proof_sentences
from ....engine.trials.report import as_markdown
from ....engine.trials.search_results import limit_seconds, more_minutes
from ....engine.trials.trial_preset import with_changes
from ....engine.units import counted, estimate
from ...base.errors import clean
from ..dialogs import Ask, AskText, complaining
from ..runs.actions import ended, request_stop
from ..starting import ask_and_launch, measurement, open_measurement

if TYPE_CHECKING:
    from ....engine.options import Options
    from ....engine.presets import Preset
    from ....engine.proof.request import Request
    from ....engine.trials.record import Record
    from ...base.base_app import BaseApp

STOP = (
    "Stop the {what}? Its current trial is ended first; results so far and changes that were kept stay.\n"
    "Stop it a second time to end it at once."
)
IMPROVED = "improved.yaml"
MOST_MINUTES = 100_000


async def stop(app: BaseApp, proof: Proof, kind: str = "") -> None:
    """Ask the user whether to stop the proof, search or sweep (`kind`), then ask its process to stop."""
    what = kinds.kind(kind).noun

    def moot() -> str:
        return "" if proof.state == "running" else f"the {what} has ended meanwhile"

    if await app.push_screen_wait(Ask(STOP.format(what=what), ("Stop", "Go on"), moot, "stop")) != "Stop":
        return
    with complaining(app):
        await asyncio.to_thread(request_stop, proof, proof_folder.request_stop)
        app.notify("stopping: the current trial is ended first")


async def go_on(app: BaseApp, proof: Proof, data: Record) -> None:
    """Resume a search, a sweep or a measurement of scaling; a search whose time is used up with more minutes."""
    from ....engine.proof import proof_start  # only if one is gone on with
    from ....engine.tune import tune_request  # the same

    what = {"scaling": "measurement", "sweep": "sweep"}.get(data.kind, "search")
    limit, more = limit_seconds(data), None
    if what == "search" and (data.state == "done" or (limit is not None and data.seconds >= limit)):
        asking = AskText("How many more minutes?", str(more_minutes(data)), _no_minutes)
        minutes = await app.push_screen_wait(asking)
        if minutes is None:
            return
        more = float(minutes)
    of_kind = partial(proof_start.resumed, proof, data.kind)
    resumed = partial(tune_request.resumed, proof, more) if what == "search" else of_kind
    with complaining(app):
        start = measurement(app, f"the {what} {proof.id}", resumed, proof)
        if (made := await ask_and_launch(app, start)) is not None:
            app.engines.append(made[1])
            app.notify(f"the {what} goes on")


def _no_minutes(text: str) -> str:
    try:
        return "" if 0.1 <= float(text) <= MOST_MINUTES else f"give minutes from 0.1 to {MOST_MINUTES:,}"
    except ValueError:
        return f"{text!r} is no number of minutes"


async def open_improved(app: BaseApp, proof: Proof, preset_yaml: str) -> None:
    """Open the improved preset, whose text is `preset_yaml`, in the form, where it can be viewed, started and saved."""
    path = proof.path / IMPROVED
    try:
        await asyncio.to_thread(write_atomically, path, preset_yaml)
    except OSError as fault:
        app.complain(f"{path} cannot be written: {fault.strerror or fault}")
        return
    app.open_form(path)


async def save_report(app: BaseApp, proof: Proof, data: Record, folder: Path) -> None:
    """Ask for a path (relative to `folder`), and save the report there as Markdown."""
    path = await _path(app, "Save the report as Markdown to this path", f"proof-{proof.id}.md", folder)
    if path is None:
        return
    try:
        await asyncio.to_thread(path.write_text, as_markdown(data), encoding="utf-8")
    except (OSError, KeyError, TypeError, ValueError) as fault:
        app.complain(f"{path} cannot be written: {getattr(fault, 'strerror', None) or fault}")
    else:
        app.notify(str(path), title="Saved", markup=False)


async def save_kept(app: BaseApp, proof: Proof, name: str, folder: Path) -> None:
    """Ask for a path (relative to `folder`), and save the preset with all kept changes there."""
    path = await _path(app, "Save the preset with the best settings to this path", name, folder)
    if path is None:
        return
    with complaining(app):
        await asyncio.to_thread(improved_preset.save, proof, path)
        app.notify(str(path), title="Saved", markup=False)


async def _path(app: BaseApp, question: str, name: str, folder: Path) -> Path | None:
    # Asks again before an existing file is replaced. A relative path is in `folder`.
    given = await app.push_screen_wait(AskText(question, name))
    if not given or not given.strip():
        return None
    path = folder / os.path.expanduser(given.strip())  # noqa: ASYNC240 - asked once, of a file that is being saved
    if path.exists() and await app.push_screen_wait(Ask(f"{path} exists.", ("Overwrite", "Cancel"))) != "Overwrite":
        return None
    return path


async def apply_kept(app: BaseApp, proof: Proof, data: Record) -> None:
    """Put the kept changes into the form with the preset, marked if not proved; without a file, the improved preset."""
    kept = proof_sentences.to_take(data)
    mark = " (not proved)" if proof_sentences.unproved(data) else ""

    def settings() -> tuple[Path, Options] | str:
        request = proof.request
        options = with_changes(request.baseline(), kept).options
        if request.source and (source := Path(request.source)).is_file():
            return source, options
        return improved_preset.preset(proof).to_yaml()

    with complaining(app):
        source = await asyncio.to_thread(settings)
        if isinstance(source, str):
            await open_improved(app, proof, source)
            return
        app.apply(source[0], kept, proof_sentences.changes(kept) + mark, source[1])
        if mark:
            app.notify(clean(f"{proof_sentences.changes(kept)}: {proof_sentences.not_proved(data)}"), markup=False)


async def copy_report(app: BaseApp, data: Record) -> None:
    try:
        app.copy(as_markdown(data), "the report as Markdown")
    except (KeyError, TypeError, ValueError) as fault:
        app.complain(f"there is no report so far: {fault}")


STOP_FIRST = "The run has not ended and would disturb the measurements: it has to end first.\nStop it after this step?"
WHICH = (
    "Measure how the speed grows with the number of replicas?\n\n"
    "Weak scaling keeps the batch of each replica, so that the global batch grows with them; strong scaling keeps the "
    "global batch."
)
WEAK, STRONG, CANCEL, PROVE, MEASURE = "Weak", "Strong", "Cancel", "Prove", "Measure"


# ---- a proof of a diagnosis -----------------------------------------------------------------------


async def prove(app: BaseApp, run: Run, diagnosis: Diagnosis | None) -> None:
    """Ask, then start the proof of the run's remedies. If the run has not ended, only ask whether to stop it."""
    state = await asyncio.to_thread(lambda: run.state)
    if state in runs.ACTIVE_STATES:
        dialog = Ask(STOP_FIRST, ("Stop it", "Keep it going"), lambda: ended(run))
        if await app.push_screen_wait(dialog) == "Stop it":
            with complaining(app):
                await asyncio.to_thread(runs.request_stop, run)
                message = f"stopping after this step; press {app.key('prove')} again when the run has ended"
                app.notify(message, markup=False)
        return
    count = sum(bool(remedy["changes"]) for remedy in diagnosis.remedies) if diagnosis else 0
    if not count:
        app.notify("there is nothing to prove: the diagnosis proposes no change of options")
        return

    def asked() -> tuple[Request, float]:
        from ....engine.proof import duration

        of_run = request.of_run(run)
        request.refuse(of_run, this_machine.read())
        return of_run, duration.of_request(of_run) * 2 * of_run.repeats

    with complaining(app, "cannot be proved: "):
        proof, seconds = await asyncio.to_thread(asked)
        question = (
            f"Prove it by measuring? {counted(count, 'changes')} to try, one after the other, each in "
            f"{counted(proof.repeats, 'pairs')} of trials of {proof.measure_seconds:g} s (at least {LEAST_STEPS} "
            "steps), with and without it; what is not clearly faster is not kept.\n\n"
            f"Each change takes about {estimate(seconds)}, all of them about {estimate(count * seconds)}. "
            "Run nothing else on the machine meanwhile. You may leave the screen of the proof; "
            f"{app.key('stop')} there stops the proof."
        )
        await _begin(app, proof, question, PROVE, f"the proof of {proof.preset_name}")


async def _begin(app: BaseApp, request: Request, question: str, yes: str, name: str) -> None:
    if await app.push_screen_wait(Ask(question, (yes, CANCEL))) != yes:
        return
    if (made := await ask_and_launch(app, measurement(app, name, lambda: request))) is not None:
        open_measurement(app, *made)


# ---- scaling ---------------------------------------------------------------------------------------


async def measure_scaling(app: BaseApp, preset: Preset) -> None:
    """Ask which kind of scaling to measure (weak or strong), then start it."""
    from ....engine.scaling import rounds

    answer = await app.push_screen_wait(Ask(WHICH, (WEAK, STRONG, CANCEL)))
    if answer in (WEAK, STRONG):
        await start_scaling(app, lambda: rounds.requested(preset, (), KEEPS[answer == STRONG]))


async def start_scaling(app: BaseApp, asked: Callable[[], Request]) -> None:
    with complaining(app, "cannot be measured: "):
        request, question = await asyncio.to_thread(lambda: _checked(asked(), app.key("stop")))
        await _begin(app, request, question, MEASURE, f"the scaling of {request.preset_name}")


def _checked(asked: Request, stop: str) -> tuple[Request, str]:
    """Return what is measured, and in words about how long that takes. Raises as `request.refuse`."""
    from ....engine.proof import duration as estimates

    request.refuse(asked, this_machine.read())
    settings = asked.scaling.settings if asked.scaling else ()
    counts = ", ".join(str(setting.replicas) for setting in settings)
    times = estimates.times_of(asked)
    needed = estimates.sure_trials(asked) * times.seconds(asked.measure_seconds)
    return asked, (
        f"{asked.preset_name} is trained with {counts} replicas in turn, in {asked.repeats} rounds of trials of "
        f"{asked.measure_seconds:g} s. This takes about {estimate(needed)} ({times.source}).\n\n"
        f"Run nothing else on the machine meanwhile. You may leave the screen; {stop} stops the measurement."
    )
