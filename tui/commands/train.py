"""Trains without a screen, and resumes: a progress bar on a terminal, plain lines elsewhere, JSON lines with --json.
Ctrl-C requests the run to stop and shows its summary; a second ends it at once. SIGHUP ends the command only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from ...engine.follow_targets import FOLDER as FOLLOW_FOLDER
from ..base.errors import DONE, FAILED, OutputFault, Refused, clean, complain, report, unheard
from . import completion, is_called
from .shared_options import (
    JSON_OR_DETACH,
    NEEDS_QUEUE,
    cluster_options,
    join_cluster,
    new_code_option,
    queue_options,
    refuse_contradictions,
    settings_option,
    training_options,
    wait_option,
)

if is_called():
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn
    from rich.table import Table
    from rich.text import Text

    from ...engine import checks, plan
    from ...engine import presets as preset_files
    from ...engine import runs as run_folders
    from ...engine.figures import GPU, LOSS, at, metric, shown, summed_up
    from ...engine.finding import Finding, errors
    from ...engine.gpu import Gpu
    from ...engine.job import slurm, start_worker, this_machine
    from ...engine.job.machine_gpus import Machine
    from ...engine.leases import gpu_use
    from ...engine.leases.gpu_use import NotMeasuredError
    from ...engine.leases.records import NotFree
    from ...engine.options import Options
    from ...engine.presets import Preset
    from ...engine.process import launch, resuming
    from ...engine.queue import adding
    from ...engine.runs import Follower, Run, checkpoint_files, code_files, events, previews, titles
    from ...engine.runs.events import Event, Finished, Summary
    from ...engine.runs.launched_with import options_of, python_of
    from ...engine.runs.parsing import line_of
    from ...engine.runs.run_state import RunState
    from ...engine.units import NONE, amount, counted, seconds
    from ..base.glyphs import draws_again
    from ..printing.plain_tables import console
    from ..reading.run.snapshot import EpochMean
    from ..wording import run as wording
    from ..wording.run import DOING, ENDED, compiling, error_text, is_early, naming_log, scaled_learning_rate
    from . import queue as in_queue
    from .stopping import Presses, code_of

    Begun = tuple[Run, Follower, subprocess.Popen[bytes]]


def run_preset(
    name: str, settings: Sequence[str], *, as_json: bool, detach: bool, dry_run: bool, resume_if_any: bool,
    code: str | None, wait: bool, anyway: bool, queue: bool, after: str | None, run_name: str | None,
) -> int:  # fmt: skip
    """What `gputui --preset NAME` does with its options: check the preset, train it, and follow the run to its end."""
    called = titles.name_in(run_name or "")
    if queue:
        adding.refuse_here(f"gputui --preset {name}")
        first = in_queue.first(after)
        elsewhere = replace(adding.machine(), cluster=None, cluster_fault=adding.ON_SEVERAL_MACHINES)
        preset, _, findings = checked(name, settings, elsewhere)
        say(findings)
        return in_queue.added(adding.queue_preset(replace(preset, run_name=called), first, anyway))
    preset, here, findings = checked(name, settings)
    preset = replace(preset, run_name=called)
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
    others = gpu_use.in_use(preset.options, here) if here.gpus and sys.stderr.isatty() else ""
    if others and not wait and not anyway:
        complain(f"warning: {others}\n--wait starts when they are free, device.visible=free:1 takes another GPU")

    def start() -> Begun:
        run, process = launch.start(preset, complain)
        return run, Follower(run, keep_lines=as_json), process

    return _trained(preset.options, start, "started", [*findings, *start_worker.test_cluster(kind, here)],
                    as_json, detach, wait)  # fmt: skip


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@settings_option()
@training_options
@click.argument("script", shell_complete=completion.preset)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def run(context: click.Context, /, script: str, arguments: Sequence[str], settings: Sequence[str], **how: Any) -> int:
    """The script runs as by `python SCRIPT ARGUMENTS`, without a change of it, and its first fit of a Keras model
    becomes a run: shown, queued, stopped and resumed as any other. Options of gputui stand before the script, and those
    that nothing sets are as in its fit. --set fit=2 makes the second fit the run; `gputui SCRIPT` opens the form on it,
    and --preset SCRIPT gives it to diagnose, tune and sweep.

    \b
    gputui run train.py --lr 0.001
    gputui run --set policy=mixed_bfloat16 --set xla=true train.py
    gputui diagnose --preset train.py --apply -o faster.yaml
    """
    refuse_contradictions(context)
    if not script.endswith(".py") or not os.path.isfile(script):
        what = "is no file of Python code" if os.path.exists(script) else "does not exist"
        raise Refused(f"{clean(script)} {what}; name a script, such as train.py (gputui --preset NAME trains a preset)")
    argv = [f"workload.argv={json.dumps(list(arguments))}"] if arguments else []
    return run_preset(script, [*argv, *settings], **how)


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
    if not run.liveness.host and (error := run_folders.not_ended_error(run, run.state, "resume")):
        raise error
    here, joined = start_worker.machine_to_resume(run)
    kind = options_of(run).get(plan.KIND)
    python = checks.of_resumed(python_of(run), str(run.file("preset.yaml")))
    findings = [*checks.of_kind(kind, here), *joined, *python]
    for conflict in errors(findings):
        raise Refused(_refusal(run.name, conflict))
    findings += start_worker.test_cluster(kind, here)

    def again() -> Begun:
        follower = Follower(run, from_now=True, keep_lines=as_json)
        return run, follower, resuming.resume(run, code == "new", complain, from_copy=code == "copy")

    options = resuming.preset_to_resume(run).options
    return _trained(options, again, "is resumed", findings, as_json, detach, wait)


def _trained(
    options: Options, begin: Callable[[], Begun], begun: str, findings: Sequence[Finding], as_json: bool, detach: bool,
    wait: bool,
) -> int:  # fmt: skip
    """Begin a training, with `wait` when its devices are free. With `detach` print its id, else show its events until
    it has ended. Raises Refused, and KeyboardInterrupt after a Ctrl-C before the training begins."""
    presses = Presses(options.run.stop_signal)  # from here on Ctrl-C is for the run
    training: Begun | None = None
    while training is None:
        if wait:
            gpu_use.wait(lambda: gpu_use.why_not(options, this_machine.read()), complain, lambda: presses.count > 0)
        if presses.count:
            raise KeyboardInterrupt
        try:
            training = begin()
        except NotMeasuredError:
            raise
        except NotFree as fault:
            if not wait:
                raise Refused(f"{fault}\n--wait starts when that has changed") from None
    run, follower, process = training
    try:
        if detach:
            complain(f"{titles.with_name(run)} {begun}; gputui watch {run.name} shows it")
            say([*findings, *filter(None, [slurm.when_detached(os.environ)])])
            print(run.id, flush=True)
            return DONE
        presses.ask(lambda numbers: run_folders.request_stop(run, numbers), lambda: run.state == "starting")
        view = JsonView(run, findings) if as_json else LineView(run, console(), draws_again(console().is_dumb_terminal))
        try:
            if isinstance(view, LineView):
                view.findings(findings)
            for _ in presses.rounds(lambda: not follower.ended, view.stopping):
                for event in follower.poll():
                    view.show(event)
        finally:
            view.close()
    except RuntimeError as fault:  # no thread can be started
        report(fault)
        return FAILED
    except OutputFault as fault:  # the run itself continues
        running = f"{run.name} is still running; show it with: gputui watch {run.name}"
        has_ended = f"{run.name} has ended; everything is in {run.path}"
        return unheard(fault, running if run.state in run_folders.ACTIVE_STATES else has_ended)
    process.wait()
    if run.file(FOLLOW_FOLDER).exists():  # a job ends with this command
        from ...engine.follow import following  # few runs have followers

        for state in following.wait(run.path):
            complain(f"{state.target} {state.words}; gputui follow {run.name} shows when it has all figures")
    return code_of(run, follower.outcome)


def say(findings: Sequence[Finding]) -> None:
    for finding in findings:
        complain(finding.line)


class JsonView:
    """Prints the run's events on stdout as JSON lines, and prints nothing else there."""

    def __init__(self, run: Run, findings: Sequence[Finding]) -> None:
        self.run = run
        say(findings)

    def show(self, event: Event) -> None:
        print(line_of(event), flush=True)
        if isinstance(event, Finished) and (error := event.summary.get("error")):
            complain(error_text(error, self.run.name))

    def stopping(self, more: str) -> None:
        complain(f"stopping after this step{more}")

    def close(self) -> None:
        sys.stdout.flush()


LINE_SECONDS = 5.0
_SAID = ("importing", "configuring", "building", "evaluating", "saving", "script")


class LineView:
    """Prints phases, epochs and warnings as lines. The progress is a line every few seconds or, if `live`, one bar in
    the last line of the terminal, which also has the phase."""

    def __init__(self, run: Run, out: Console, live: bool = False) -> None:
        self.run, self.out, self.state = run, out, RunState()
        self.gpu: Gpu | None = None  # the busiest of those that train
        self._next_line = 0.0
        self._doing = ""
        self._slowest: int | None = None
        self._bar: Progress | None = None
        if live:
            description, figures = (
                TextColumn(text, markup=False) for text in ("{task.description}", "{task.fields[figures]}")
            )
            bar = BarColumn(bar_width=20)
            self._bar = Progress(description, bar, figures, console=out, transient=True, refresh_per_second=5)
            self._bar.add_task("", total=None, figures="")

    def findings(self, findings: Sequence[Finding]) -> None:
        for finding in findings:
            self.line(finding.line)
        title = f"{titles.with_name(self.run)}  " if self.run.number is not None else ""
        self.line(f"{title}run {self.run.id}")

    def line(self, text: str) -> None:
        self.out.print(Text(clean(text)), soft_wrap=self._bar is None)

    def show(self, event: Event) -> None:
        self.state.fold(event)
        handler = getattr(self, f"on_{event.type}", None)
        if handler is not None:
            handler(event)

    def stopping(self, more: str) -> None:
        self.line(f"stopping{' after this step' if self.state.step else ''}{more}")

    def close(self) -> None:
        if self._bar is not None and self._bar.live.is_started:
            self._bar.stop()

    def on_phase(self, event: events.Phase) -> None:
        now = DOING[event.phase] if event.phase in _SAID else ""
        if events.waits_for_others(event.phase, event.detail) or event.detail.startswith("counting "):
            now = event.detail
        ends_epoch = event.phase in ("evaluating", "saving")
        if self._bar is not None:
            if now:
                self._show_bar(self._bar, description=now, **({} if ends_epoch else {"figures": ""}))
            return
        now = compiling(event.detail) if event.phase == "compiling" else now
        if now and now != self._doing and not ends_epoch:
            self.line(f"{now} ...")
        self._doing = now

    def _show_bar(self, bar: Progress, **fields: Any) -> None:
        if not bar.live.is_started:
            bar.start()
        bar.update(bar.task_ids[0], **fields)

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

    def on_test(self, event: events.TestEnd) -> None:
        metrics = "  ".join(f"{name} {amount(value)}" for name, value in event.metrics.items())
        of = f"model of epoch {event.epoch}" if event.epoch else "by the script"
        self.line(f"test ({of})  {metrics}  in {seconds(event.seconds)}")

    def on_control(self, event: events.Control) -> None:
        self.line(f"after step {event.step}: {event.message}")

    def on_progress(self, event: events.Progress) -> None:
        if self._bar is not None:
            self._show_bar(self._bar, description=f"epoch {event.epoch}/{event.epochs}", completed=event.step,
                           total=event.steps, figures=self.speeds(event))  # fmt: skip
        elif event.t >= self._next_line:
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
        for sentence in wording.sentences(summary):
            self.line(sentence)
        for sentence in filter(None, (summary.learning, summary.learning_remedy)):
            self.line(clean(sentence))
        steps = state.progress.steps if state.progress else 0
        early = is_early(event.outcome, state.step, steps) and not wording.stopped_early(summary)
        at = f" early: a callback ended the training after step {state.step:,.0f} of {steps:,}" if early else ""
        ended, why = ENDED.get(event.outcome, event.outcome), clean((error or {}).get("message", "")).partition("\n")[0]
        ended = why if why.startswith(ended) else f"{ended}: {why}" if why else ended
        self.line(f"{ended}{at}; everything is in {self.run.path}")
        if epochs := previews.listed(self.run.path):
            shows = f"gputui watch {self.run.name} and the key Z show them"
            self.line(f"previews of {counted(len(epochs), 'epochs')} are in its folder {previews.FOLDER}; {shows}")
        has_checkpoints = bool(checkpoint_files.steps_in(self.run.file("checkpoints")))
        if has_checkpoints and event.outcome in ("stopped", "timeout", "crashed"):
            self.line(f"gputui resume {self.run.name} continues from the last checkpoint")


def summary_table(summary: Summary, devices: Sequence[str]) -> Table:
    """Return a table of a run's results, names and values, from its `summary`; `devices` have trained it."""
    table = Table(box=None, show_header=False, pad_edge=False)
    values = {figure: at(summary, figure.key) for figure in summed_up(devices) if figure is not LOSS}
    # of a run that ended before its first step no zeros
    rows = [(figure.label, figure.text(value)) for figure, value in values.items() if value or summary.steps]
    metrics = summary.metrics
    rows += [(metric(name).label, metric(name).text(value)) for name, value in metrics.items()]
    if metrics:
        rows.append(("loss, metrics", f"means of the {EpochMean.of_result(summary, next(iter(metrics))).steps}"))
    rows = [(name, value) for name, value in rows if value != NONE]
    for name, value in rows:
        table.add_row(Text(clean(name), style="bold"), Text(clean(value)))
    return table
