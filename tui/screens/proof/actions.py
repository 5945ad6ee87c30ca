"""The actions on proofs, searches and measurements of scaling. The disk is accessed in threads.
Deferred imports: proofs and the machine are needed only when one is started."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....engine import runs
from ....engine.files.writing import write_atomically
from ....engine.job import this_machine
from ....engine.plan import LEAST_STEPS
from ....engine.presets import PresetError
from ....engine.proof import folder as proof_folder
from ....engine.proof import improved_preset, request
from ....engine.proof.folder import Proof
from ....engine.proof.markdown import as_markdown
from ....engine.runs import Run, RunError
from ....engine.runs.events import Diagnosis
from ....engine.trials import KEEPS, proof_sentences
from ....engine.trials.trial_preset import with_changes
from ....engine.tune.report.search_results import limit_seconds
from ....engine.tune.report.search_sentences import more_minutes
from ....engine.units import counted, estimate
from ...base.errors import clean
from ..dialogs import Ask, AskText
from ..runs.actions import ended
from ..starting import ask_and_launch, launch_and_open, new_measurement, resumed_measurement

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
    what = {"tune": "search", "sweep": "sweep"}.get(kind, "proof")
    question = Ask(STOP.format(what=what), ("Stop", "Go on"), lambda: _ended(proof, what), "stop")
    if await app.push_screen_wait(question) != "Stop":
        return
    try:
        await asyncio.to_thread(_stop, proof)
    except (RunError, OSError) as reason:
        app.complain(str(reason))
    else:
        app.notify("stopping: the current trial is ended first")


def _stop(proof: Proof) -> None:
    # Slurm passes the request on to a job.
    if proof.queue_file.exists():
        from ....engine.queue import slurm_queue  # only for a queued measurement

        if slurm_queue.stop(proof.id):
            return
    proof_folder.request_stop(proof)


def _ended(proof: Proof, what: str) -> str:
    return "" if proof.state == "running" else f"the {what} has ended meanwhile"


async def go_on(app: BaseApp, proof: Proof, data: Record) -> None:
    """Resume a search, a sweep or a measurement of scaling; a search whose time is used up with more minutes."""
    from ....engine.scaling import scaling_request  # only if one is gone on with
    from ....engine.sweep import sweep_request  # the same
    from ....engine.tune import tune_request  # the same

    what, resumed = {
        "scaling": ("measurement", scaling_request.resumed), "sweep": ("sweep", sweep_request.resumed)
    }.get(data.kind, ("search", tune_request.resumed))  # fmt: skip
    limit = limit_seconds(data)
    if what == "search" and (data.state == "done" or (limit is not None and data.seconds >= limit)):
        minutes = await app.push_screen_wait(AskMinutes("How many more minutes?", str(more_minutes(data))))
        if minutes is None:
            return
        resumed = partial(tune_request.resumed, minutes=float(minutes))
    try:
        made = await ask_and_launch(
            app, resumed_measurement(app, f"the {what} {proof.id}", proof, partial(resumed, proof))
        )
    except (RunError, PresetError, OSError) as reason:
        app.complain(str(reason))
        return
    if made is not None:
        app.engines.append(made[1])
        app.notify(f"the {what} goes on")


class AskMinutes(AskText):
    """Asks for a number of minutes, from 0.1 to MOST_MINUTES; other texts are not accepted. The result is the text, or
    None if the dialog was left."""

    def refuse(self, text: str) -> str:
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
        await asyncio.to_thread(_write, path, data)
    except (OSError, KeyError, TypeError, ValueError) as fault:
        app.complain(f"{path} cannot be written: {getattr(fault, 'strerror', None) or fault}")
    else:
        app.notify(str(path), title="Saved", markup=False)


async def save_kept(app: BaseApp, proof: Proof, name: str, folder: Path) -> None:
    """Ask for a path (relative to `folder`), and save the preset with all kept changes there."""
    path = await _path(app, "Save the preset with the best settings to this path", name, folder)
    if path is None:
        return
    try:
        await asyncio.to_thread(_save_kept, proof, path)
    except (RunError, PresetError, OSError) as fault:
        app.complain(str(fault))
    else:
        app.notify(str(path), title="Saved", markup=False)


def _save_kept(proof: Proof, path: Path) -> None:
    improved_preset.save(proof, path)


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
    try:
        source, options = await asyncio.to_thread(_settings_for_form, proof, kept)
        if source is None:
            await open_improved(app, proof, await asyncio.to_thread(_improved, proof))
            return
    except (RunError, PresetError, OSError) as fault:
        app.complain(str(fault))
        return
    app.apply_to_preset(source, kept, options, proof_sentences.changes(kept) + mark)
    if mark:
        app.notify(clean(f"{proof_sentences.changes(kept)}: {proof_sentences.not_proved(data)}"), markup=False)


def _improved(proof: Proof) -> str:
    return improved_preset.preset(proof).to_yaml()


def _settings_for_form(proof: Proof, kept: Mapping[str, Any]) -> tuple[Path | None, Options]:
    # The file is None if the preset has none, or if it no longer exists.

    request = proof.request
    source = Path(request.source) if request.source else None
    options = with_changes(request.baseline(), kept).options
    return (source if source is not None and source.is_file() else None), options


async def copy_report(app: BaseApp, data: Record) -> None:
    try:
        text = as_markdown(data)
    except (KeyError, TypeError, ValueError) as fault:
        app.complain(f"there is no report so far: {fault}")
    else:
        app.copy(text, "the report as Markdown")


def _write(path: Path, data: Record) -> None:
    path.write_text(as_markdown(data), encoding="utf-8")


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
        await _stop_first(app, run)
        return
    count = sum(bool(remedy["changes"]) for remedy in diagnosis.remedies) if diagnosis else 0
    if not count:
        app.notify("there is nothing to prove: the diagnosis proposes no change of options")
        return
    try:
        request, seconds = await asyncio.to_thread(_request, run)
        question = _question(request, seconds, count, app.key("stop"))
        await _begin(app, request, question, PROVE, f"the proof of {request.preset_name}")
    except (PresetError, RunError, OSError, ValueError) as reason:
        app.complain(f"cannot be proved: {reason}")


async def _begin(app: BaseApp, request: Request, question: str, yes: str, name: str) -> None:
    if await app.push_screen_wait(Ask(question, (yes, CANCEL))) == yes:
        await launch_and_open(app, new_measurement(app, name, request))


async def _stop_first(app: BaseApp, run: Run) -> None:
    if await app.push_screen_wait(Ask(STOP_FIRST, ("Stop it", "Keep it going"), lambda: ended(run))) != "Stop it":
        return
    try:
        await asyncio.to_thread(runs.request_stop, run)
    except (RunError, OSError) as reason:
        app.complain(str(reason))
    else:
        message = f"stopping after this step; press {app.key('prove')} again when the run has ended"
        app.notify(message, markup=False)


def _request(run: Run) -> tuple[Request, float]:
    # Raises PresetError, RunError, OSError or ValueError if the proof is not possible on this machine.
    from ....engine.proof import duration, request

    asked = request.of_run(run)
    request.refuse(asked, this_machine.read())
    return asked, duration.of_request(asked) * 2 * asked.repeats


def _question(request: Request, seconds: float, count: int, stop: str) -> str:
    """What the proof of `count` changes measures, and how long that takes at most, of which each takes `seconds`."""
    return (
        f"Prove it by measuring? {counted(count, 'changes')} to try, one after the other, each in "
        f"{counted(request.repeats, 'pairs')} of trials of {request.measure_seconds:g} s (at least {LEAST_STEPS} "
        "steps), with and without it; what is not clearly faster is not kept.\n\n"
        f"Each change takes about {estimate(seconds)}, all of them about {estimate(count * seconds)}. "
        "Run nothing else on the machine meanwhile. You may leave the screen of the proof; "
        f"{stop} there stops the proof."
    )


# ---- scaling ---------------------------------------------------------------------------------------


async def measure_scaling(app: BaseApp, preset: Preset, source: Path | None) -> None:
    """Ask which kind of scaling to measure (weak or strong), then start it. `source` is the preset's file."""
    answer = await app.push_screen_wait(Ask(WHICH, (WEAK, STRONG, CANCEL)))
    if answer in (WEAK, STRONG):
        await _start_scaling(app, lambda: _of_opened(preset, source, KEEPS[answer == STRONG], app.key("stop")))


async def measure_again(app: BaseApp, proof: Proof) -> None:
    await _start_scaling(app, lambda: _checked(proof.request, app.key("stop")))


async def _start_scaling(app: BaseApp, asked: Callable[[], tuple[Request, str]]) -> None:
    try:
        request, question = await asyncio.to_thread(asked)
        await _begin(app, request, question, MEASURE, f"the scaling of {request.preset_name}")
    except (PresetError, RunError, OSError, ValueError) as reason:
        app.complain(f"cannot be measured: {reason}")


def _of_opened(preset: Preset, source: Path | None, keep: str, stop: str) -> tuple[Request, str]:
    from ....engine.scaling import scaling_request

    return _checked(scaling_request.of_opened(preset, source, keep), stop)


def _checked(asked: Request, stop: str) -> tuple[Request, str]:
    # Raises PresetError, RunError, OSError or ValueError if the measurement is not possible on this machine.

    request.refuse(asked, this_machine.read())
    return asked, _scaling_question(asked, stop)


def _scaling_question(asked: Request, stop: str) -> str:
    """What is measured, and about how long that takes."""
    from ....engine.proof import duration as estimates

    settings = asked.scaling.settings if asked.scaling else ()
    counts = ", ".join(str(setting.replicas) for setting in settings)
    times = estimates.times_of(asked)
    needed = estimates.sure_trials(asked) * times.seconds(asked.measure_seconds)
    return (
        f"{asked.preset_name} is trained with {counts} replicas in turn, in {asked.repeats} rounds of trials of "
        f"{asked.measure_seconds:g} s. This takes about {estimate(needed)} ({times.source}).\n\n"
        f"Run nothing else on the machine meanwhile. You may leave the screen; {stop} stops the measurement."
    )
