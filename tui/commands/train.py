"""Trains without a screen, and resumes: a progress bar on a terminal, plain lines elsewhere, JSON lines with --json.
Ctrl-C requests the run to stop and shows its summary; a second ends it at once. SIGHUP ends the command only."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from ...engine.follow_targets import FOLDER as FOLLOW_FOLDER
from ..base.errors import (
    DONE,
    FAILED,
    OutputFault,
    Refused,
    clean,
    complain,
    report,
    unheard,
)
from . import completion, is_called
from .shared_options import (
    JSON_OR_DETACH,
    NEEDS_QUEUE,
    cluster_options,
    join_cluster,
    new_code_option,
    queue_options,
    wait_option,
)

if is_called():
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn
    from rich.table import Table
    from rich.text import Text

    from ...engine import checks, plan
    from ...engine import presets as preset_files
    from ...engine import runs as run_folders
    from ...engine.figures import GPU, LOSS, at, metric, shown, summed_up
    from ...engine.finding import Finding, errors
    from ...engine.gpu import Gpu
    from ...engine.job import slurm, start_worker
    from ...engine.job.machine_gpus import Machine
    from ...engine.leases import free_gpus
    from ...engine.leases.free_gpus import NotMeasuredError
    from ...engine.leases.lease import NotFree
    from ...engine.options import Options
    from ...engine.presets import Preset
    from ...engine.process import launch, resuming
    from ...engine.queue import adding
    from ...engine.runs import Follower, Run, RunError, checkpoint_files, code_files, events, titles
    from ...engine.runs.events import Event, Finished, Summary
    from ...engine.runs.launched_with import options_of, python_of
    from ...engine.runs.parsing import line_of
    from ...engine.runs.run import WAITING
    from ...engine.runs.run_state import RunState
    from ...engine.units import NONE, amount, counted, seconds
    from ..base.glyphs import draws_again
    from ..printing.plain_tables import console
    from ..reading.run.snapshot import EpochMean
    from ..wording import run as best_epochs
    from ..wording import run as wording
    from ..wording.run import DOING, ENDED, compiling, doing, error_text, is_early, naming_log, scaled_learning_rate
    from . import queue as in_queue
    from .stopping import Presses, code_of

POLL_SECONDS = 0.1
Started = TypeVar("Started")


def run_preset(
    name: str, settings: Sequence[str], *, as_json: bool, detach: bool, dry_run: bool, resume_if_any: bool,
    code: str | None, wait: bool, anyway: bool, queue: bool, after: str | None,
) -> int:  # fmt: skip
    """What `gputui --preset NAME` does with its options: check the preset, train it, and follow the run to its end."""
    if queue:
        adding.refuse_here(f"gputui --preset {name}")
        first = in_queue.first(after)
        elsewhere = replace(adding.machine(), cluster=None, cluster_fault=adding.ON_SEVERAL_MACHINES)
        preset, _, findings = checked(name, settings, elsewhere)
        say(findings)
        return in_queue.added(adding.queue_preset(preset, first, anyway))
    preset, here, findings = checked(name, settings)
    kind = preset.options.strategy.kind
    if dry_run:
        say(findings)
        print_preset(launch.settle(preset, Path.cwd()))
        return DONE
    if resume_if_any and (run := resuming.of_preset(preset, complain)) is not None:
        if run.state == "ok":
            complain(f"{run.name} has completed: nothing is trained")
            return DONE
        if not (reason := resuming.why_not(run)):
            if code != "new":
                code_files.check(run, code == "copy")
            complain(f"{run.name} is resumed")
            return _resume(run, as_json, detach, code, wait)
        complain(f"{reason}: a new run is started")
    findings += start_worker.test_cluster(kind, here)
    presses = Presses(preset.options.run.stop_signal)  # from here on Ctrl-C is for the run
    others = free_gpus.in_use(preset.options, here) if here.gpus and sys.stderr.isatty() else ""
    if others and not wait and not anyway:
        complain(f"warning: {others}\n--wait starts when they are free, device.visible=free:1 takes another GPU")
    run, process = _when_free(preset.options, wait, presses, lambda: launch.start(preset, complain))
    if detach:
        if run.number is not None:
            complain(f"{titles.with_name(run)} started; gputui watch {run.name} shows it")
        return _detached(run, findings)
    return _follow(run, Follower(run, keep_lines=as_json), process, as_json, findings, presses)


def checked(
    name: str, settings: Sequence[str], machine: Machine | None = None
) -> tuple[Preset, Machine, list[Finding]]:
    """Return the preset, the machine on which it trains, and the findings about it. Raises Refused if a finding is an
    error. `machine` is the machine to check against; None for this machine."""
    preset = preset_files.resolve(name, settings)
    here, joined = start_worker.machine_for(preset.options.strategy.kind, preset.options.device.visible)
    here = machine or here
    findings = [*checks.of_preset(preset, here), *joined]
    if conflicts := errors(findings):
        more = f"\nand {len(conflicts) - 1} more conflict(s)" if len(conflicts) > 1 else ""
        raise Refused(f"{_refusal(place(preset, conflicts[0]), conflicts[0])}{more}")
    return preset, here, findings


def print_preset(preset: Preset) -> None:
    print(clean(preset.to_yaml()), end="")


def place(preset: Preset, finding: Finding, otherwise: str = "") -> str:
    """Return the place that set one of its options: FILE:LINE, or `--set KEY=VALUE`; else `otherwise` or the name."""
    set_at = [preset.origins[key] for key in finding.options if key in preset.origins]
    where, line = set_at[0] if set_at else (otherwise or preset.name, None)
    return f"{where}:{line}" if line is not None else where


def _refusal(where: str, finding: Finding) -> str:
    """The place and what is wrong, and on a second line the remedy, which may be a command."""
    keys = ", ".join(finding.options)
    what = finding.what if where.startswith(f"--set {keys}=") or not keys else f"{keys}: {finding.what}"
    return "\n".join(filter(None, (f"{where}: {what}", finding.remedy)))


def _when_free(options: Options, wait: bool, presses: Presses, start: Callable[[], Started]) -> Started:
    """If `wait`, begin when devices are free. Raises Refused, KeyboardInterrupt after a Ctrl-C."""
    while True:
        if wait:
            free_gpus.wait(options, complain, lambda: presses.count > 0)
        if presses.count:
            raise KeyboardInterrupt
        try:
            return start()
        except NotMeasuredError:
            raise
        except NotFree as fault:
            if not wait:
                raise Refused(f"{fault}\n--wait starts when that has changed") from None


@click.command()
@click.argument("run", required=False, shell_complete=completion.run)
@click.option("--latest", is_flag=True, help="The newest run that can be resumed.")
@click.option("--json", "as_json", is_flag=True, help="Print the run's events on stdout, one JSON object per line.")
@click.option("--detach", is_flag=True, help="Resume in the background: print the run's id and return at once.")
@queue_options
@new_code_option
@wait_option
@cluster_options
def resume(
    run: str | None, latest: bool, as_json: bool, detach: bool, queue: bool, after: str | None, code: str | None,
    wait: bool, workers: str | None, worker: int | None,
) -> int:  # fmt: skip
    if (run is None) != latest:
        raise Refused("name one run to resume, or give --latest alone; gputui runs lists them")
    if queue and (as_json or detach or wait or workers is not None):
        raise Refused("--queue resumes nothing now: leave out --json, --detach, --wait and --cluster")
    if after is not None and not queue:
        raise Refused(NEEDS_QUEUE)
    if as_json and detach:
        raise Refused(JSON_OR_DETACH)
    join_cluster(workers, worker)
    ended = resuming.latest() if run is None else run_folders.find(run)
    if queue:
        return in_queue.added(adding.queue_resume(ended, in_queue.first(after), code or ""))
    return _resume(ended, as_json, detach, code, wait)


def _resume(run: Run, as_json: bool, detach: bool, code: str | None, wait: bool) -> int:
    if run.state == WAITING:
        raise run_folders.waiting_error(run, "resume")
    kind = options_of(run).get(plan.KIND)
    here, joined = start_worker.machine_to_resume(run)
    python = checks.of_resumed(python_of(run), str(run.file("preset.yaml")))
    findings = [*checks.of_kind(kind, here), *joined, *python]
    for conflict in errors(findings):
        raise Refused(_refusal(run.name, conflict))
    findings += start_worker.test_cluster(kind, here)
    follower = Follower(run, from_now=True, keep_lines=as_json)
    presses = Presses(str(options_of(run).get("run.stop_signal", "none")))
    preset = resuming.preset_to_resume(run)

    def again() -> subprocess.Popen[bytes]:
        return resuming.resume(run, code == "new", complain, from_copy=code == "copy")

    process = _when_free(preset.options, wait, presses, again)
    if detach:
        complain(f"{titles.with_name(run)} is resumed; gputui watch {run.name} shows it")
        return _detached(run, findings)
    return _follow(run, follower, process, as_json, findings, presses)


def say(findings: Sequence[Finding]) -> None:
    for finding in findings:
        complain(finding.line)


def _follow(
    run: Run,
    follower: Follower,
    process: subprocess.Popen[bytes],
    as_json: bool,
    findings: Sequence[Finding],
    presses: Presses,
) -> int:
    try:
        presses.ask(lambda numbers: _ask_to_stop(run, numbers))
    except RuntimeError as fault:  # no thread can be started
        report(fault)
        return FAILED
    try:
        _show(run, follower, as_json, findings, presses)
    except OutputFault as fault:
        return _unheard(run, fault)
    process.wait()
    _wait_for_followers(run)
    return code_of(run, follower.outcome)


def _wait_for_followers(run: Run) -> None:
    # A job ends with this command.
    if not run.file(FOLLOW_FOLDER).exists():
        return
    from ...engine.follow import following as follow  # few runs have followers

    for state in follow.wait(run.path):
        complain(f"{state.target} {state.words}; gputui follow {run.name} shows when it has all figures")


def _show(run: Run, follower: Follower, as_json: bool, findings: Sequence[Finding], presses: Presses) -> None:
    """Show the run's events until it has ended: as JSON lines, as a progress bar on a terminal, else as lines."""
    view = _view(run, as_json, findings)
    shown_stops = 0
    try:
        while not follower.ended:
            for event in follower.poll():
                view.show(event)
            if presses.count > shown_stops:
                shown_stops += 1
                view.stopping(presses.more)
            if not follower.ended:
                time.sleep(POLL_SECONDS)
    finally:
        view.close()


def _detached(run: Run, findings: Sequence[Finding]) -> int:
    ends_with_job = slurm.when_detached(os.environ)
    say([*findings, *([ends_with_job] if ends_with_job else [])])
    try:
        print(run.id, flush=True)
    except OutputFault as fault:
        return _unheard(run, fault)
    return DONE


def _unheard(run: Run, fault: OutputFault) -> int:
    # The run itself continues.
    running = f"{run.name} is still running; show it with: gputui watch {run.name}"
    has_ended = f"{run.name} has ended; everything is in {run.path}"
    return unheard(fault, running if run.state in run_folders.ACTIVE_STATES else has_ended)


def _ask_to_stop(run: Run, numbers: Sequence[int]) -> None:
    """Send the engine the signals, which ask it to stop; of a starting run, when its process id is recorded."""
    while True:
        try:
            run_folders.request_stop(run, numbers)
            return
        except RunError:
            if run.state != "starting":
                return
            time.sleep(POLL_SECONDS)


def _view(run: Run, as_json: bool, findings: Sequence[Finding]) -> LineView | JsonView:
    if as_json:
        say(findings)
        return JsonView(run)

    kind = BarView if draws_again(console().is_dumb_terminal) else LineView
    view = kind(run, console())
    view.findings(findings)
    return view


class JsonView:
    """Prints the run's events on stdout as JSON lines, and prints nothing else there."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def show(self, event: Event) -> None:
        print(line_of(event), flush=True)
        if isinstance(event, Finished) and (error := event.summary.get("error")):
            complain(error_text(error, self.run.name))

    def stopping(self, more: str) -> None:
        complain(f"stopping after this step{more}")

    def close(self) -> None:
        sys.stdout.flush()


LINE_SECONDS = 5.0
_SAID = ("importing", "configuring", "building", "evaluating", "saving")


class LineView:
    """Prints the events as plain lines: phases, a line of progress every few seconds, every epoch, every warning."""

    def __init__(self, run: Run, out: Console) -> None:
        self.run, self.out, self.state = run, out, RunState()
        self.gpu: Gpu | None = None  # the busiest of those that train
        self._next_line = 0.0
        self._doing = ""
        self._slowest: int | None = None

    def findings(self, findings: Sequence[Finding]) -> None:
        for finding in findings:
            self.line(finding.line)
        title = f"{titles.with_name(self.run)}  " if self.run.number is not None else ""
        self.line(f"{title}run {self.run.id}")

    def line(self, text: str) -> None:
        self.out.print(Text(clean(text)), soft_wrap=True)

    def show(self, event: Event) -> None:
        self.state.fold(event)
        handler = getattr(self, f"on_{event.type}", None)
        if handler is not None:
            handler(event)

    def stopping(self, more: str) -> None:
        self.line(f"stopping after this step{more}")

    def close(self) -> None:
        pass

    def on_phase(self, event: events.Phase) -> None:
        now = compiling(event.detail) if event.phase == "compiling" else _doing(event)
        if now and now != self._doing and event.phase not in ("evaluating", "saving"):
            self.line(f"{now} ...")
        self._doing = now

    def on_started(self, event: events.Started) -> None:
        where = ", ".join(name.split("device:")[-1] for name in event.devices)
        replicas = f", {event.replicas} replicas" if (event.replicas or 1) > 1 else ""
        if event.worker is not None and event.workers:
            replicas += f" on {counted(len(event.workers), 'workers')}, this one worker {event.worker}"
        resumed = event.resumed_at_step
        self.line(
            f"TensorFlow {event.versions.get('tensorflow', NONE)} on {where}{replicas}; global batch "
            f"{event.global_batch_size}, {counted(event.steps_per_epoch, 'steps')} per epoch, "
            f"{counted(event.epochs, 'epochs')}"
            + (f"; {rate}" if (rate := scaled_learning_rate(event)) else "")
            + (f"; resumed after step {resumed}" if resumed is not None else "")
        )

    def on_gpu(self, event: events.GpuReadings) -> None:
        if event.missing:
            self.line(f"no GPU readings: {event.missing}")
        used = self.state.started.gpus if self.state.started else ()
        training = [gpu for gpu in event.gpus if gpu.uuid in used]
        self.gpu = max(training, key=lambda gpu: gpu.busy or -1, default=None)

    def on_warning(self, event: events.Warn) -> None:
        text = naming_log(event.finding.text, f"gputui logs {self.run.name}")
        self.line(f"warning: {text}".replace("\n", "; "))

    def on_epoch(self, event: events.EpochEnd) -> None:
        metrics = "  ".join(f"{name} {amount(value)}" for name, value in event.metrics.items())
        self.line(f"epoch {event.epoch}  {metrics}  in {seconds(event.seconds)}")

    def on_progress(self, event: events.Progress) -> None:
        if event.t >= self._next_line:
            self._next_line = event.t + LINE_SECONDS
            self.line(f"step {event.step}/{event.steps}  {self.speeds(event)}")

    def speeds(self, event: events.Progress) -> str:
        so_far = {LOSS: " so far"}  # the mean of the epoch
        parts = [figure.phrase(getattr(event, figure.progress)) + so_far.get(figure, "") for figure in shown("live")]
        if self.gpu is not None:
            device = ", ".join(GPU[key].phrase(self.gpu.value(key)) for key in ("busy", "memory_used_bytes"))
            parts.append(f"GPU {device}")
        return "  ".join(parts)

    def on_workers(self, event: events.WorkerReadings) -> None:
        if event.slowest != self._slowest:
            self._slowest = event.slowest
            self._say_workers()

    def _say_workers(self) -> None:
        for line in wording.worker_lines(self.state.workers):
            self.line(line)

    def on_finished(self, event: events.Finished) -> None:
        self.close()
        state = self.state
        assert state.summary is not None  # of this event
        summary, error = state.summary, state.summary.error
        if error:
            complain(error_text(error, self.run.name))
        self._say_workers()
        self.out.print(summary_table(summary, state.started.devices if state.started else ()))
        for sentence in best_epochs.sentences(summary):
            self.line(sentence)
        if summary.learning:
            self.line(clean(summary.learning))
        steps = state.progress.steps if state.progress else 0
        early = is_early(event.outcome, state.step, steps) and not best_epochs.stopped_early(summary)
        at = f" early: a callback ended the training after step {state.step:,.0f} of {steps:,}" if early else ""
        ended, why = ENDED.get(event.outcome, event.outcome), clean((error or {}).get("message", "")).partition("\n")[0]
        ended = why if why.startswith(ended) else f"{ended}: {why}" if why else ended
        self.line(f"{ended}{at}; everything is in {self.run.path}")
        has_checkpoints = bool(checkpoint_files.steps_in(self.run.file("checkpoints")))
        if has_checkpoints and event.outcome in ("stopped", "timeout", "crashed"):
            self.line(f"gputui resume {self.run.name} continues from the last checkpoint")


def _doing(event: events.Phase) -> str:
    if events.waits_for_others(event.phase, event.detail):
        return doing(event.phase, event.detail)
    return DOING[event.phase] if event.phase in _SAID else ""


class BarView(LineView):
    """Prints the same lines as LineView, but shows the progress as one bar in the last line. For a terminal."""

    def __init__(self, run: Run, out: Console) -> None:
        super().__init__(run, out)
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[figures]}", markup=False),
            console=out,
            transient=True,
            refresh_per_second=5,
        )
        self._task: TaskID | None = None
        self._started = False

    def line(self, text: str) -> None:
        self._bar.console.print(Text(clean(text)))

    def on_phase(self, event: events.Phase) -> None:
        now = _doing(event)
        if now and event.phase in ("evaluating", "saving"):
            self._update(description=now)
        elif now:
            self._update(description=now, figures="")

    def on_progress(self, event: events.Progress) -> None:
        self._update(
            description=f"epoch {event.epoch}/{event.epochs}",
            completed=event.step,
            total=event.steps,
            figures=self.speeds(event),
        )

    def _update(self, **fields: Any) -> None:
        if not self._started:
            self._bar.start()
            self._started = True
        if self._task is None:
            self._task = self._bar.add_task("", total=None, figures="")
        self._bar.update(self._task, **fields)

    def close(self) -> None:
        if self._started:
            self._bar.stop()
            self._started = False


def summary_table(summary: Summary, devices: Sequence[str]) -> Table:
    """Return a table of the results of a run, `summary` of its last event, with names and values. `devices` are the
    names of the devices that have trained."""
    table = Table(box=None, show_header=False, pad_edge=False)
    rows = [(figure.label, figure.text(at(summary, figure.key))) for figure in summed_up(devices) if figure is not LOSS]
    metrics = summary.metrics
    rows += [(metric(name).label, metric(name).text(value)) for name, value in metrics.items()]
    if metrics:
        rows.append(("loss, metrics", f"means of the {EpochMean.of_result(summary, next(iter(metrics))).steps}"))
    rows = [(name, value) for name, value in rows if value != NONE]
    for name, value in rows:
        table.add_row(Text(clean(name), style="bold"), Text(clean(value)))
    return table
