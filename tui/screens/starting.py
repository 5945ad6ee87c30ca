"""Starts runs and measurements: the last check against this machine, and the question if its devices are busy: to wait,
to begin anyway, or to cancel. A measurement that begins anyway says in each trial which training ran at the same time.
Deferred imports: the folder of a proof is needed only for measurements, the queue only for starts that wait."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from ...engine import checks, plan, presets, runs
from ...engine.finding import Finding, errors
from ...engine.job import this_machine
from ...engine.leases.gpu_use import NotMeasuredError
from ...engine.leases.records import NotFree
from ...engine.plan import LEAST_STEPS
from ...engine.process import launch
from ...engine.process import resuming as run_resuming
from ...engine.proof import folder, proof_start, request
from ...engine.runs import RunError, code_files
from ...engine.runs.checkpoint_files import steps_in
from ...engine.runs.events import Diagnosis
from ...engine.runs.launched_with import options_of, python_of
from ...engine.runs.titles import with_name
from ...engine.trials import KEEPS, LEAST_REPEATS
from ...engine.units import counted, estimate
from ..base.errors import clean
from .dialogs import Ask, complaining

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

    from ...engine.job.machine_gpus import Machine
    from ...engine.presets import Preset
    from ...engine.process.launch import Warm
    from ...engine.proof.folder import Proof
    from ...engine.proof.request import Request
    from ...engine.queue.entries import Entry
    from ...engine.runs import Run
    from ..base.base_app import BaseApp


@dataclass(frozen=True)
class Start:
    """A run or a measurement that is to be started or resumed. Its functions are called in a thread. `in_the_way`
    returns a text that names another training on the same devices, else an empty text. `launch` returns the run or the
    proof, and its process. `queue` puts it in the queue, and returns its place and what it waits for, as text. With
    `measures`, another training at the same time would disturb its figures."""

    title: str
    in_the_way: Callable[[], str]
    launch: Callable[[], tuple[Any, Any]]
    queue: Callable[[], str]
    measures: bool = False


class ConflictError(Exception):
    """The options conflict with each other or with `here`, the machine, by the `findings` of the check."""

    def __init__(self, here: Machine, findings: tuple[Finding, ...]) -> None:
        super().__init__(str(errors(findings)[0]))
        self.here, self.findings = here, findings


def new_run(app: BaseApp, preset: Preset) -> Start:
    """Return the start of a new run, with the warm engine if there is one."""

    def launch_it() -> tuple[Run, Any]:
        warm = app.take_warm()
        try:
            return start(preset, warm)
        except ConflictError:
            app.warm = warm
            raise

    def queue_it(adding: Any) -> Entry:
        _check(preset, adding.machine())
        return cast("Entry", adding.queue_preset(preset))

    def in_the_way() -> str:
        return proof_start.in_the_way(preset.options, this_machine.read())

    return Start(launch.title_of(preset), in_the_way, launch_it, partial(_queued, queue_it))


def _queued(add: Callable[[Any], Entry]) -> str:
    """Call `add` with the module that puts things in the queue; return the place of the new entry, as text."""
    from ...engine.queue import adding
    from ..reading import queue

    return queue.place_text(add(adding), queue.title_of)


def code_changed(run: Run) -> str:
    """Return in words how the user's code has changed since the run's checkpoint; empty without a change."""
    return code_files.describe(run) if steps_in(run.file("checkpoints")) else ""


def resumed_run(run: Run, new_code: bool = False, from_copy: bool = False) -> Start:
    """Return the start that resumes a run. If the code has changed, it raises RunError without one of the flags."""

    def in_the_way() -> str:
        if not steps_in(run.file("checkpoints")):  # raised before any question
            raise RunError(run_resuming.without_checkpoint(run))
        preset = presets.resolve(str(run.file("preset.yaml")))
        return proof_start.in_the_way(preset.options, this_machine.read(), run.path)

    def launch_it() -> tuple[Run, Any]:
        kind = options_of(run).get(plan.KIND)
        python = checks.of_resumed(python_of(run), str(run.file("preset.yaml")))
        findings = [*checks.by_command(kind), *checks.of_kind(kind, this_machine.read()), *python]
        for conflict in errors(findings):
            raise RunError(f"{run.name} cannot be resumed: {conflict}")
        return run, run_resuming.resume(run, new_code, from_copy=from_copy)

    code = "new" if new_code else "copy" if from_copy else ""
    return Start(
        with_name(run), in_the_way, launch_it, partial(_queued, lambda adding: adding.queue_resume(run, code=code))
    )


def start(preset: Preset, warm: Warm | None) -> tuple[Run, Any]:
    """Check and launch a run, with its engine's process. Raises ConflictError, OSError or RunError."""
    _check(preset, this_machine.read())
    return warm.start(preset) if warm is not None else launch.start(preset)


def _check(preset: Preset, here: Machine) -> None:
    # Raises ConflictError if there is an error.
    findings = tuple(checks.on_screen(preset, here))
    if errors(findings):
        raise ConflictError(here, findings)


QUEUE = "Queue it"
WAIT, START, MEASURE, CANCEL = "Wait for it", "Start anyway", "Measure anyway", "Cancel"


async def choice_if_busy(app: BaseApp, start: Start) -> str:
    """Return START or MEASURE, WAIT (in the queue by now), or CANCEL, which the user chooses if devices are busy."""
    busy = await asyncio.to_thread(start.in_the_way)
    if not busy:
        return START
    anyway, question = START, "on the same devices: at the same time both are slower, or run out of memory."
    if start.measures:
        anyway, question = (
            MEASURE,
            ("on the same devices, and would disturb the measurements: the figures are worse, and the result says so."),
        )
    question = f"{busy[0].upper()}{busy[1:]} {question}\n{anyway}?"
    answer = await app.push_screen_wait(Ask(question, (WAIT, anyway, CANCEL)))
    if answer == WAIT:
        await put_in_queue(app, start)
    return answer or CANCEL


async def launched(app: BaseApp, start: Start) -> Any:
    """Launch; return the run or the measurement, whose engine's exit code the application collects."""
    made, engine = await asyncio.to_thread(start.launch)
    app.engines.append(engine)
    return made


async def ask_and_launch(app: BaseApp, start: Start) -> Any:
    """Launch, asking if devices are busy; None if it waits or is cancelled. Raises as the launch but NotFree."""
    if await choice_if_busy(app, start) in (WAIT, CANCEL):
        return None
    try:
        return await launched(app, start)
    except NotMeasuredError:  # the queue could not start it either
        raise
    except NotFree as fault:
        question = f"{start.title} {fault}." if str(fault).startswith("needs") else f"{fault}."
        if await app.push_screen_wait(Ask(question, (QUEUE, CANCEL))) == QUEUE:
            await put_in_queue(app, start)
        return None


async def put_in_queue(app: BaseApp, start: Start) -> None:
    """Put a run or a measurement in the queue, and say what it waits for. Raises as the launch does."""
    app.notify(clean(f"queued: {start.title}, {await asyncio.to_thread(start.queue)}"), markup=False)


def measurement(
    app: BaseApp, title: str, request: Callable[[], Request], resumed: Proof | None = None, learns: bool = False
) -> Start:
    """Return the start of a new proof, search or measurement of scaling, or of one that is `resumed`, now or in the
    queue. `title` names it for the user; nothing disturbs it if it `learns`. The warm engine ends before the launch."""

    def in_the_way() -> str:  # the folder of a resumed one does not count as another user
        of, own = (request(), ()) if resumed is None else (resumed.request, (resumed.path,))
        return proof_start.blocks(of, this_machine.read(), *own)

    def launch() -> tuple[Proof, subprocess.Popen[bytes]]:
        app.close_warm()
        if resumed is None:
            return folder.launch(request())
        return resumed, proof_start.start_again(resumed, request(), anyway=True)

    def add(adding: Any) -> Entry:
        added = adding.queue_proof(request()) if resumed is None else adding.queue_resumed_proof(resumed, request())
        return cast("Entry", added)

    return Start(title, in_the_way, launch, partial(_queued, add), measures=not learns)


# ---- how to make it faster ------------------------------------------------------------------------


DIAGNOSE, SEARCH, MORE_GPUS = "Diagnose", "Search", "More GPUs"
FASTER = (
    "Make {} faster, and prove the gain?\n\n"
    f"{DIAGNOSE:<11}finds what limits it, tries remedies: minutes\n"
    f"{SEARCH:<11}tries all settings: 10 minutes, or as you give\n"
    f"{MORE_GPUS:<11}measures how the speed grows with them"
)


async def how_faster(app: BaseApp, name: str) -> str | None:
    asking = Ask(FASTER.format(clean(name)), (DIAGNOSE, SEARCH, MORE_GPUS, CANCEL))
    asking.seen_after_seconds = 0.0  # each way asks again
    return await app.push_screen_wait(asking)


def loop_of(preset: Preset) -> Request:
    return request.of_opened("loop", preset, repeats=LEAST_REPEATS, ablation_repeats=1)


# ---- proofs of a diagnosis, and scaling -----------------------------------------------------------


STOP_FIRST = "The run has not ended and would disturb the measurements: it has to end first.\nStop it after this step?"
WHICH = (
    "Measure how the speed grows with the number of replicas?\n\n"
    "Weak scaling keeps the batch of each replica, so that the global batch grows with them; strong scaling keeps the "
    "global batch."
)
WEAK, STRONG, PROVE, MEASURE_IT = "Weak", "Strong", "Prove", "Measure"


async def prove(app: BaseApp, run: Run, diagnosis: Diagnosis | None) -> None:
    """Ask, then start the proof of the run's remedies. If the run has not ended, only ask whether to stop it."""
    state = await asyncio.to_thread(lambda: run.state)
    if state in runs.ACTIVE_STATES:
        if await app.push_screen_wait(Ask(STOP_FIRST, ("Stop it", "Keep it going"))) == "Stop it":
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
        from ...engine.proof import duration

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
        app.open_proof(made)


async def measure_scaling(app: BaseApp, preset: Preset) -> None:
    """Ask which kind of scaling to measure (weak or strong), then start it."""
    from ...engine.scaling import rounds

    answer = await app.push_screen_wait(Ask(WHICH, (WEAK, STRONG, CANCEL)))
    if answer in (WEAK, STRONG):
        await measure(app, lambda: rounds.requested(preset, (), KEEPS[answer == STRONG]))


async def measure(app: BaseApp, asked: Callable[[], Request]) -> None:
    """Say what is measured and about how long that takes, then start it."""
    with complaining(app, "cannot be measured: "):
        request, question = await asyncio.to_thread(lambda: _checked(asked(), app.key("stop")))
        await _begin(app, request, question, MEASURE_IT, f"the measurement of {request.preset_name}")


def _checked(asked: Request, stop: str) -> tuple[Request, str]:
    """Return what is measured, and in words about how long that takes. Raises as `request.refuse`."""
    from ...engine.proof import duration as estimates

    request.refuse(asked, this_machine.read())
    settings = asked.scaling.settings if asked.scaling else ()
    counts = ", ".join(str(setting.replicas) for setting in settings)
    times = estimates.times_of(asked)
    needed = estimates.sure_trials(asked) * times.seconds(asked.measure_seconds)
    what, pairs, more = f"trained with {counts} replicas in turn", "rounds", ""
    if asked.kind == "loop":
        what, pairs = "diagnosed, and the remedies are tried one by one", "pairs"
        more = ", and longer with each further remedy"
    return asked, (
        f"{asked.preset_name} is {what}, in {asked.repeats} {pairs} of trials of {asked.measure_seconds:g} s. "
        f"This takes about {estimate(needed)} ({times.source}){more}.\n\n"
        f"Run nothing else on the machine meanwhile. You may leave the screen; {stop} stops the measurement."
    )
