"""The engine process: watches the trainer, takes readings, ends the trainer if necessary, and records how it ended. It
has no TensorFlow, which can hang in C++, die by a signal, or hold GPU memory until it exits.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from statistics import median
from typing import Any

from ..diagnosis import SteadyVerdict, diagnose
from ..diagnosis.collector import Collector
from ..files import places, writing
from ..files.values import whole
from ..files.writing import write_atomically
from ..interpreter import installed
from ..leases import gpu_use
from ..options import options_json, watch_rules
from ..runs import Run, events, results, run_cluster
from ..runs.event_reading import Tail, in_time, last_of
from ..runs.events import EVENT_FILES, EVENTS_FILE, TELEMETRY_FILE, GpuReadings, Started, Warn, WatchAnswer
from ..runs.launched_with import options_of
from ..runs.parsing import EventWriter
from ..system import descendants, stop_signals
from ..system.identity import Place, Process
from ..system.locks import Lock
from ..system.run_clock import RunClock, steady
from ..telemetry import resource_limits
from ..telemetry.sampler import Sampler, StoppableThread
from . import ending, recovery
from .known_failures import MEMORY, RESUME, RESUMED, XLA
from .recovery import Answer
from .spawn import DUMP_STACKS, Trainer, put_result_aside, start_trainer
from .time_limits import SUSPENDED_SECONDS, Activity, TimeLimit
from .watching import Watch

TICK_SECONDS = 0.1
HEARTBEAT_SECONDS = 1.0
HELD_SECONDS = 30.0  # a process that is killed and has not ended by then is held by the kernel
READING_SECONDS = 5.0  # for reading the GPUs once more after the trainer has died
DRIVER_ERROR_SECONDS = 60.0  # an error of a GPU that was reported earlier is not what has ended the trainer
THREAD_SECONDS = 5.0  # for a thread to emit what it has found last
STACKS_SECONDS = 2.5  # for a hung trainer to write the stacks of its threads

NO_LOCKS = "the file system of the run folder has no locks: only its processes show whether the run is alive"
NO_LOCKS_HINT = "do not resume it elsewhere while it runs; better set GPUTUI_HOME to a folder on a local disk"
STUCK_HINT = "nvidia-smi shows which process holds it; until it ends gputui starts nothing there"


class Supervisor:
    """Supervises the trainer of one run until it has ended, and makes sure that the run has a result. `leased` is the
    variable LEASED, by which the engine has inherited leases.
    """

    def __init__(self, run: Run, trainer: Trainer, lock: Lock, clock: RunClock, leased: str = "") -> None:
        self.run, self.lock = run, lock
        self.leases = gpu_use.inherited(leased)
        self.options = options_json.read(run.path)
        self.launched = clock
        self._processes = {"engine": Process.of(os.getpid())}
        self._take(trainer, clock)
        self.stop_requests = self.asked_by_person = 0
        self.stops_written = (0, 0)
        self.asked_because = self.ended_by = self.ended_by_rule = ""
        self.asked_at: float | None = None
        self.gives_up_at = 0.0  # the time until which a full disk is waited for
        self.killed_at: float | None = None
        self.held = self.reported_suspended = False
        self.limit_reached = ""
        self.memory_answers = 0
        self.events = EventWriter(run.file(TELEMETRY_FILE), run.id, clock)
        self.time_limit = TimeLimit(self.options.run.max_minutes, clock, self.events.emit)
        self.followers = Followers(run, self.options.run.follow or ())

    def _take(self, trainer: Trainer, clock: RunClock) -> None:
        """Supervise `trainer` from now on; `clock` counts from its start."""
        self.started_trainer, self.clock = trainer, clock
        self.trainer, self.lifeline = trainer.process, trainer.lifeline
        self.report, self.heartbeat = trainer.report, trainer.heartbeat
        self._processes["trainer"] = Process.of(self.trainer.pid)
        self.phase, self.lost_gpus = "starting", list[str]()
        self.oom_kills = ending.kernel_oom_kills()

    def supervise(self) -> int:
        """Do all the work of the engine, until the run has ended. Return the engine's exit status, 0."""
        for number in stop_signals.NUMBERS:
            signal.signal(number, self._on_signal)
        signal.signal(stop_signals.BY_PERSON, self._on_person)
        if (name := self.options.run.stop_signal) in stop_signals.BY_SCHEDULER:
            signal.signal(stop_signals.BY_SCHEDULER[name], self._on_stop_signal)
        stop_signals.let_through()
        descendants.adopt_orphans()
        self._write_status()
        if not self.lock.works:
            self.events.emit(Warn(kind="no_locks", message=NO_LOCKS, hint=NO_LOCKS_HINT))
        watcher = LiveDiagnosis(self.run, self.events.emit, self.launched, self._watch_of_rules(), self._obey)
        watcher.start()
        workers = Workers(self.run, self.events.emit)
        workers.start()
        for warning in self.followers.start():
            self.events.emit(warning)
        self._attend()
        while self._starts_again():
            self._attend()
        workers.stop(THREAD_SECONDS)
        watcher.stop(THREAD_SECONDS)
        self.phase = "ended"
        for line in gpu_use.give_back(self.leases):
            self.events.emit(Warn(kind="stuck_gpu", message=line, hint=STUCK_HINT))
        if self.held:
            del self._processes["trainer"]  # for all readers of the status the run has ended
        self._write_status()
        from ..notify import sending  # at the end: the start of a training does not wait for it

        sending.after_run(self.run, self.events.emit)
        self.events.drain(results.TRAINER_SECONDS)
        self.events.close()
        return 0

    def _attend(self) -> None:
        """Supervise the present trainer until it has ended and the result is written."""
        seconds, pcie = self.options.run.sample_seconds, self.options.run.pcie
        network = run_cluster.of_run(self.run) is not None
        command = bool(self.options.workload.command)
        sampler = Sampler(self.events, self.trainer.pid, seconds, pcie=pcie, network=network, with_children=command)
        sampler.start()
        try:
            self._watch()
            started = last_of(self.run.path, Started)
            gpus = started.gpus if started else ()
            if gpus and not self.asked_because and (self.trainer.returncode or 0) < 0:
                # By a reading that began after the crash, if one comes within 5 s.
                tail = Tail(self.run.file(TELEMETRY_FILE), from_now=True)
                readings: list[GpuReadings] = []
                until = time.monotonic() + READING_SECONDS
                while len(readings) < 2 and time.monotonic() < until:
                    time.sleep(TICK_SECONDS)
                    readings += [event for event in tail.read() if isinstance(event, GpuReadings)]
                mine = [gpu for gpu in readings[-1].gpus if gpu.uuid in gpus] if readings else []
                self.lost_gpus = [f"GPU {gpu.index}" for gpu in mine if gpu.lost_since is not None]
        finally:
            sampler.stop()
        self._leave_result(sampler, started)
        places.remove_scratch()
        if ended := descendants.end_descendants(spared=self.trainer.pid, apart=self.followers.pids):
            self.events.emit(Warn(kind="left_behind", message=descendants.describe(ended), hint=descendants.HINT))

    def _starts_again(self) -> bool:
        """With another option, after memory ran out or XLA failed. A warning says why a possible change does not help.
        The clock of the new trainer counts from now.
        """
        result = self.run.result
        if result is None or self.held or self.stop_requests or self.asked_because:
            return False
        change: Answer | str | None = None
        if result["outcome"] != "oom":
            kind, key, change = XLA, recovery.XLA_KEY, recovery.xla_answer(self.run, self.options, result)
        else:
            kind, key = MEMORY, "run.on_oom"
            if self.options.run.on_oom != "stop":
                change = recovery.oom_answer(self.run, self.options, self.memory_answers)
        if isinstance(change, Answer):
            try:
                self.options = recovery.record(self.run, self.options, change)
            except OSError as fault:
                change = f"{fault.filename} cannot be written: {fault.strerror}"
        if not isinstance(change, Answer):
            if change is not None:
                message = f"{key}={attrgetter(key)(self.options)} ends here: {change}"
                self.events.emit(Warn(kind=kind, message=message, option=key))
            return False
        self.memory_answers += kind == MEMORY
        self.events.emit(change.event)
        self.events.emit(Warn(kind=kind, message=change.event.message, hint=change.hint, option=change.key))
        put_result_aside(self.run.path)
        print(RESUMED, flush=True)
        for pipe in (self.lifeline, self.report):
            os.close(pipe)
        places.make_scratch()
        clock = RunClock(self.launched.now(), steady())
        self._take(start_trainer(str(self.run.path), clock), clock)
        self._write_status()
        return True

    def _on_signal(self, _number: int, _frame: Any) -> None:
        """Repeated signals count as one request, as a scheduler sends them repeatedly."""
        self.stop_requests = max(1, self.stop_requests)

    def _on_person(self, _number: int, _frame: Any) -> None:
        """Each counts: the second ends the run at once. `gputui stop` and Ctrl-C send it in addition to SIGTERM."""
        self.asked_by_person += 1
        self.stop_requests = max(self.asked_by_person, self.stop_requests)

    def _on_stop_signal(self, number: int, _frame: Any) -> None:
        if not self.stop_requests:
            self.stop_requests, self.ended_by = 1, signal.Signals(number).name

    def _watch_of_rules(self) -> Watch | None:
        """Return the rules of the run, if it has some; of several machines the chief's engine judges them."""
        rules, cluster = watch_rules.parsed(self.options.run.watch), run_cluster.of_run(self.run)
        if not rules or not (cluster is None or cluster.is_chief):
            return None
        if any(rule.action == "notify" for rule in rules):
            self._send_notice("")
        return Watch(rules, self.launched.date, partial(shutil.disk_usage, self.run.path))

    def _send_notice(self, what: str) -> None:
        from ..notify import sending  # few runs have such a rule

        sending.of_rule(self.run, what, self.events.emit)

    def _obey(self, answer: WatchAnswer) -> None:
        """Record that a rule has acted, and do what it says, in the thread that judges the rules."""
        how = "queue release" if self.run.queue_file.exists() else "resume"
        hint = f"gputui {how} {self.run.name} continues it" if answer.action == "pause" else ""
        self.events.emit(answer)
        self.events.emit(Warn(kind="watch", message=answer.message, hint=hint, option=watch_rules.KEY))
        if answer.action == "notify":
            self._send_notice(answer.message)
        elif answer.action in watch_rules.ENDS and not self.stop_requests:
            self.ended_by_rule, self.stop_requests = answer.action, 1

    def _watch(self) -> None:
        activity = Activity(self.run, self.trainer.pid, self.heartbeat)
        next_heartbeat = 0.0
        # A process in a call that the kernel cannot interrupt does not end when it is killed.
        while self.trainer.poll() is None and not _is_over(self.killed_at, HELD_SECONDS):
            is_current = (
                activity.phase == self.phase and (self.stop_requests, self.asked_by_person) == self.stops_written
            )
            if not is_current or time.monotonic() >= next_heartbeat:
                self.phase = activity.phase
                self._write_status()
                for warning in self.followers.check():
                    self.events.emit(warning)
                next_heartbeat = time.monotonic() + HEARTBEAT_SECONDS
            activity.update()
            self._enforce(activity)
            descendants.collect_dead(self.trainer.pid)
            try:
                self.trainer.wait(TICK_SECONDS)
            except subprocess.TimeoutExpired:
                continue
        self.phase = activity.last_phase()
        self.held = self.trainer.poll() is None

    def _enforce(self, activity: Activity) -> None:
        """Pass a stop on, apply the limits, and kill the trainer 30 s after a request or at a person's second one."""
        hang = "off" if self.options.workload.command else self.options.run.hang_seconds  # it may wait for anything
        if self.stop_requests and not self.asked_because:
            self._ask("stop", "")
            if self.ended_by:
                message = f"{self.ended_by} has arrived, which run.stop_signal names: the run ends"
                self.events.emit(Warn(kind="stop_signal", message=message, option="run.stop_signal"))
        elif self.time_limit.is_over and not self.asked_because:
            self.ended_by = self.time_limit.option if self.time_limit.is_of_job else ""
            self._ask("timeout", self.time_limit.option)
        elif hang != "off" and self.killed_at is None and (hangs := activity.hang(hang)):
            self.limit_reached = self.limit_reached if self.asked_because else hangs
            self.trainer.send_signal(DUMP_STACKS)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.trainer.wait(STACKS_SECONDS)
            self._kill(self.asked_because or "hang")
        no_answer = self.asked_because and _is_over(self.asked_at, stop_signals.GRACE_SECONDS)
        if (self.asked_by_person > 1 or no_answer) and self.killed_at is None:
            self._kill(self.asked_because)
        if activity.suspended_seconds > SUSPENDED_SECONDS and not self.reported_suspended and self.killed_at is None:
            self.reported_suspended = True
            hint = f"continue it with kill -CONT {self.trainer.pid}; a suspended training does not count as a hang"
            message = "the training is suspended: its process was stopped by SIGSTOP or by a debugger"
            self.events.emit(Warn(kind="suspended", message=message, hint=hint))

    def _ask(self, why: str, limit: str) -> None:
        self.asked_because, self.limit_reached, self.asked_at = why, limit, time.monotonic()
        with contextlib.suppress(BrokenPipeError):  # the trainer has already ended; the next check finds out how
            os.write(self.lifeline, f"{why}\n".encode())

    def _kill(self, why: str) -> None:
        self.asked_because, self.killed_at = why, time.monotonic()
        self.trainer.kill()

    def _leave_result(self, sampler: Sampler, started: Started | None) -> None:
        """A result of the trainer is not changed."""
        self.gives_up_at = time.monotonic() + results.ENGINE_SECONDS
        report, asked = results.take(self.report), self.stop_requests
        if report.result is not None and not self.run.read_result().value:
            self._write(report.result)
        missing = results.append(self.run, report.lines, self._patience, lambda: self.stop_requests > asked)
        if count := missing + report.lost_events:
            message = (
                f"the last {count} events of the training are missing: they could not be written to disk when it ended"
            )
            self.events.emit(Warn(kind="disk", message=message))
        if missing and report.result is not None:
            self.events.emit(events.Finished(outcome=report.result["outcome"], summary=report.result))
        has_result = report.result is not None
        if not has_result:
            asked = self.stop_requests
            written = results.read(self.run, self._patience, lambda: self.stop_requests > asked)
            if written.unreadable:
                self.events.emit(Warn(kind="disk", message=f"{written.damage}; it stays as it is"))
            has_result = bool(written.value) or written.unreadable
        if has_result:
            if self.held:
                self.events.emit(Warn(kind="held", message=ending.held(self.trainer.pid), hint=ending.HELD_HINT))
            return
        gpus = started.gpus if started else ()
        evidence = ending.Evidence(
            returncode=self.trainer.returncode or 0,
            log_tail=self.run.log_tail(ending.LOG_LINES),
            batch_size=(started and started.option("input.batch_size")) or self.options.input.batch_size,
            stopped_because=self.asked_because,
            limit=self.limit_reached,
            kernel_oom_kills=ending.kernel_oom_kills() - self.oom_kills,
            memory_share=sampler.trainer_memory_share,
            phase=self.phase,
            ceilings=resource_limits.ceilings(),
            gpus=len(gpus),
            device_batches=whole(started.actual.get("device_batches")) or 0 if started else 0,
            lost_gpus=self.lost_gpus,
            driver_errors=sampler.driver_errors(DRIVER_ERROR_SECONDS, gpus),
            held_pid=self.trainer.pid if self.held else None,
            on_oom=self.options.run.on_oom,
            recomputes=self.options.compile.recompute,
            own=self.options.workload.entry is not None,
            is_command=bool(self.options.workload.command) and self.killed_at is None,
        )
        with installed.of(self.options.run.python or sys.executable):
            end = ending.classify(evidence)
        if end.outcome == "crashed" and (full := writing.try_writing(self.run.path)):
            end = replace(end, message=f"{full}; {end.message}", hint=f"free some space; {RESUME}")
        end = ending.with_hint(end, run_cluster.is_saved(self.run))
        if end.kind:
            self.events.emit(events.Fault(kind=end.kind, message=end.message, hint=end.hint))
        visible = self.options.device.visible
        gpus_of_command = visible if self.options.workload.command and isinstance(visible, list) else ()
        ended = ending.summary_of(self.run, end, self.trainer.returncode, self.clock.elapsed(), gpus_of_command)
        summary = events.plain(asdict(ended))
        self._write(summary)
        self.events.emit(events.Finished(outcome=summary["outcome"], summary=summary))

    @property
    def _patience(self) -> float:
        return max(0.0, self.gives_up_at - time.monotonic())

    def _write(self, summary: Mapping[str, Any]) -> None:
        asked = self.stop_requests
        refused = results.write(self.run, summary, self._patience, lambda: self.stop_requests > asked)
        if refused is not None:
            print(f"gputui: the result could not be written: {refused}", file=sys.stderr)

    def _write_status(self) -> None:
        status: dict[str, Any] = {
            "phase": self.phase,
            "heartbeat": time.time(),
            "stop_requests": self.stop_requests,
            "asked_by_person": self.asked_by_person,
            **({"ended_by": self.ended_by} if self.ended_by else {}),
            **({"ended_by_rule": self.ended_by_rule} if self.ended_by_rule else {}),
            **Place.here().as_fields(),
        }
        self.stops_written = self.stop_requests, self.asked_by_person
        for role, process in self._processes.items():
            status |= process.as_fields(role)
        with contextlib.suppress(OSError):  # the disk is full: it is written again with the next heartbeat
            write_atomically(self.run.file("status.json"), json.dumps(status), durable=False)


def _is_over(since: float | None, seconds: float) -> bool:
    return since is not None and time.monotonic() - since > seconds


LATE_SECONDS = 10.0  # a target that answers again within this time is not worth a warning
RESTARTS = 3  # of a follower that was killed
KEY = "run.follow"
HINT = "the training goes on, and its figures wait in the run folder; gputui follow {} shows how far each follower is"


class Followers:
    """The followers of a run for `targets`. A worker of several machines has none unless it is the chief."""

    def __init__(self, run: Run, targets: Collection[str]) -> None:
        cluster = run_cluster.of_run(run)
        self._run = run
        self._targets = tuple(targets) if cluster is None or cluster.is_chief else ()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._left = dict.fromkeys(self._targets, RESTARTS)
        self._reported: set[str] = set()

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes.values()]

    def start(self) -> Iterator[Warn]:
        """A warning for each that cannot be started."""
        for target in self._targets:
            yield from self._start(target)

    def _start(self, target: str) -> Iterator[Warn]:
        from ..follow import following  # only a run with followers needs it

        try:
            self._processes[target] = following.start(self._run.path, target)
        except OSError as fault:
            yield self._warning(f"the follower for {target} cannot be started: {fault.strerror or fault}")

    def check(self) -> Iterator[Warn]:
        """Restart followers that ended before the run. A warning for each that waits for its target, once."""
        if not self._processes:
            return
        from ..follow import following  # only a run with followers needs it

        for target, process in list(self._processes.items()):
            state = following.state(self._run.path, target)
            if process.poll() is not None and not state.is_alive and state.place.state != "done":
                del self._processes[target]
                self._left[target] -= 1
                again, how = self._left[target] >= 0 and not state.damage, f": {state.damage}" if state.damage else ""
                yield self._warning(f"the follower for {target} has ended{how}{', and is started again' * again}")
                if again:
                    yield from self._start(target)
            elif state.place.state == "waiting" and time.time() - state.place.since > LATE_SECONDS:
                if target not in self._reported:
                    self._reported.add(target)
                    yield self._warning(f"{target} {state.words}")
            elif state.place.state == "following":
                self._reported.discard(target)

    def _warning(self, message: str) -> Warn:
        return Warn(kind="follow", message=message, hint=HINT.format(self._run.id), option=KEY)


DIAGNOSIS_SECONDS = 2.0
FIRST_REPEAT_SECONDS, LAST_REPEAT_SECONDS = 4.0, 60.0
MORE_CONFIDENCE = 0.15  # an increase that is worth reporting


class LiveDiagnosis(StoppableThread):
    """Emits a Diagnosis of the run when the steady verdict changes or becomes clearly more certain (by 0.15), else one
    with newer figures at intervals that grow from 4 s to 60 s. Events before the launch (`clock`) do not count.
    `watch` judges the same events, and `obey` gets what its rules do.
    """

    def __init__(
        self, run: Run, emit: Callable[[events.Event], None], clock: RunClock, watch: Watch | None,
        obey: Callable[[WatchAnswer], None],
    ) -> None:  # fmt: skip
        super().__init__("diagnosis")
        self._emit, self._watch, self._obey = emit, watch, obey
        self._collector = Collector(options_of(run), os.environ.get("CUDA_VISIBLE_DEVICES"))
        self._tails = [Tail(run.file(name)) for name in EVENT_FILES]
        self._began_t = clock.date
        self._steady = SteadyVerdict()
        self._last: events.Diagnosis | None = None
        self._has_news = False
        self._reported_at, self._repeat_seconds = 0.0, FIRST_REPEAT_SECONDS

    def run(self) -> None:
        while not self._done.wait(DIAGNOSIS_SECONDS):
            self._update()
        self._update(final=True)

    def _update(self, final: bool = False) -> None:
        fresh = in_time(event for tail in self._tails for event in tail.read())
        self._collector.feed(fresh)
        for answer in (answer for event in fresh if self._watch for answer in self._watch.fold(event)):
            if not isinstance(answer, WatchAnswer):
                self._emit(answer)
            elif not (final and answer.action in watch_rules.ENDS):  # the run has ended
                self._obey(answer)
        newest = self._collector.newest_t
        self._has_news = self._has_news or bool(fresh)  # earlier events may not have led to a report
        if newest is None or newest < self._began_t:  # older figures are from before the run was resumed
            return
        if self._has_news:
            diagnosis = diagnose(self._collector.measurements())
            diagnosis = diagnosis if final else self._steady.after(diagnosis)
            if final or self._is_news(diagnosis):
                self._last, self._reported_at, self._has_news = diagnosis, time.monotonic(), False
                self._emit(diagnosis)

    def _is_news(self, now: events.Diagnosis) -> bool:
        last = self._last
        if last is None:
            return now.verdict != "undecided" or bool(now.learning)
        changed = now.verdict != last.verdict or bool(now.learning) != bool(last.learning)
        if changed or now.confidence >= last.confidence + MORE_CONFIDENCE:
            self._repeat_seconds = FIRST_REPEAT_SECONDS
            return True
        if time.monotonic() - self._reported_at < self._repeat_seconds:
            return False
        self._repeat_seconds = min(2 * self._repeat_seconds, LAST_REPEAT_SECONDS)
        return True


# ---- the figures of all workers of a training on several machines --------------------------------


LOOK_SECONDS = 1.0
TELL_SECONDS = 10.0
APART = 0.10  # share of the step by which the slowest worker waits longer for its input than the others
NOT_SHARED = "its run folder cannot be read from the chief's machine"
NOTHING_YET = "it has no figures yet"


class Worker:
    """The latest figures of the worker `member` (run_cluster.members), read from its run. All have `replicas` replicas
    together.
    """

    def __init__(self, member: Mapping[str, Any], replicas: int) -> None:
        self.member, self._all_replicas = member, replicas
        self._run = run_cluster.run_of(member)
        self._tails = [Tail(self._run.file(name), from_now=True) for name in EVENT_FILES] if self._run else []
        self._progress: events.Progress | None = None
        self._busy: list[float | None] = []

    def update(self) -> None:
        for event in in_time(event for tail in self._tails for event in tail.read()):
            if isinstance(event, events.Progress):
                self._progress = event
            elif isinstance(event, GpuReadings):
                own = self.member.get("gpus") or ()
                self._busy = [gpu.busy for gpu in event.gpus if gpu.uuid in own]

    def figures(self) -> events.WorkerFigures:
        """If nothing is known of its speed, `missing` has the reason."""
        figures: events.WorkerFigures = {"index": self.member["index"], "address": self.member["address"]}
        now = self._progress
        if now is None:
            return {**figures, "missing": NOTHING_YET if self._run else NOT_SHARED}
        part = (self.member.get("replicas") or 0) / self._all_replicas if self._all_replicas else None
        speed = now.samples_per_second
        return {
            **figures,
            "samples_per_second": None if speed is None or not part else speed * part,
            "step_ms_p50": now.step_ms_p50,
            "input_wait": now.input_wait,
            "gpus_busy": self._busy,
        }


class Workers(StoppableThread):
    """Passes the figures of all workers to `tell` every 10 s, in the engine of the chief (the first worker), which
    reads their run folders, if it can; the workers do nothing for it. In other engines the thread ends at once.
    """

    def __init__(self, run: Run, tell: Callable[[events.Event], None]) -> None:
        super().__init__("workers")
        self._folder, self._tell = run, tell
        self._events = Tail(run.file(EVENTS_FILE), from_now=True)  # a resumed run may have other workers

    def run(self) -> None:
        joined = run_cluster.of_run(self._folder)
        if joined is None or not joined.is_chief:
            return
        members: Sequence[Mapping[str, Any]] = ()
        while not members:
            if self._done.wait(LOOK_SECONDS):
                return
            started = [event for event in self._events.read() if isinstance(event, Started)]
            members = started[-1].workers if started else ()
        replicas = sum(member.get("replicas") or 0 for member in members)
        workers = [Worker(member, replicas) for member in members]
        known_before, due, done = -1, 0.0, False
        while not done:
            done = self._done.wait(LOOK_SECONDS)
            for worker in workers:
                worker.update()
            figures = [worker.figures() for worker in workers]
            known_now = sum("missing" not in figure for figure in figures)
            if done or known_now != known_before or time.monotonic() >= due:
                known_before, due = known_now, time.monotonic() + TELL_SECONDS
                self._tell(events.WorkerReadings(workers=figures, slowest=slowest(figures)))


def slowest(figures: Sequence[events.WorkerFigures]) -> int | None:
    """The index of the worker for which the others wait: its share of the step that it waits for input is at least 0.10
    above the median of theirs. None if there is none.
    """
    waits = {worker["index"]: wait for worker in figures if (wait := worker.get("input_wait")) is not None}
    if len(waits) < 2:
        return None
    last = max(waits, key=lambda index: waits[index])
    others = median(wait for index, wait in waits.items() if index != last)
    return last if waits[last] - others >= APART else None


# ---- an engine that fails itself ----------------------------------------------------------------


def leave(run_folder: str, trainer: Trainer | None, fault: BaseException) -> int:
    """End the run after the exception `fault` of its engine, and write the result. Returns the exit status, 1.
    `trainer` is None if none was started. A result that exists keeps its figures; an unreadable one is not changed.
    """
    traceback.print_exc()
    if trainer is not None:  # asked to stop, it can save a checkpoint; it is killed if it has not ended after 30 s
        with contextlib.suppress(OSError):
            os.write(trainer.lifeline, b"stop\n")
        try:
            trainer.process.wait(stop_signals.GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            trainer.process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # a process that the kernel holds does not end
                trainer.process.wait(stop_signals.GRACE_SECONDS)
    places.remove_scratch()
    descendants.end_descendants(spared=trainer.process.pid if trainer is not None else 0)
    run = Run(Path(run_folder))
    what = f"{type(fault).__name__}: {fault}"[:240]
    error = {"kind": "engine", "message": f"the engine failed: {what}", "hint": "see the end of engine.log"}
    if end := ending.of_fault(fault):
        error = {"kind": end.kind, "message": end.message, "hint": end.hint}
    from ..notify import sending  # as at the end of a run

    written = run.read_result()
    summary: dict[str, Any] = asdict(events.Summary(outcome="error")) | dict(written.value)
    summary |= {"outcome": "error", "error": error}
    if not written.unreadable:  # else its figures would be lost
        write_atomically(run.file("result.json"), json.dumps(events.plain(summary), indent=1))
    writer = EventWriter(run.file(TELEMETRY_FILE), run.id)
    writer.emit(events.Fault(**error))
    writer.emit(events.Finished(outcome="error", summary=summary))
    sending.after_run(run, writer.emit)
    writer.close()
    return 1
