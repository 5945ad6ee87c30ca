"""The runner of the queue: decides which entry is started next, and follows those that it has started to their end.
There is one small process for each home. Its state is in the entries, so that another runner can go on if this runner
is killed at any moment. An entry is `starting` until the process that launches its run has started the engine. Only
that process changes it to `running`, under the lock of the queue and only if the entry is still that of this start.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..files import typed
from ..files.places import proofs_folder
from ..notify import sending, targets
from ..runs import RunError, part_of_sweep
from ..runs.run import PROOF, ProofState
from ..system import locks
from ..system.identity import Place
from . import entries, entry_changes, jobs, queue_devices, queue_settings
from .entries import Device, Entry, ListingReader, News
from .forecast import FairShare
from .jobs import FAILED, End, Job
from .slurm_queue import SlurmFollower

TICK_SECONDS = 0.5
WALK_SECONDS = 2.0  # between two looks at the devices, if no entry has changed
AGAIN_SECONDS, LONGEST_AGAIN_SECONDS = 2.0, 30.0  # before another try, if the devices were not free after all
QUICK_SECONDS, MOST_FAILURES = 60.0, 3  # so many failures of one group, each so soon after its start, hold the group
BEGUN_STATES = ("starting", "running")
BEGUN, NOT_FREE, REFUSED = 0, 75, 3  # exit codes of the process that starts a run
LOST_GPU, OUT_OF_MEMORY = "gpu_lost", "oom"
SWEEP = "sweep"  # which takes its devices only until its trials are in the queue

Child = Any  # a subprocess.Popen, or what stands in for it
Launch = Callable[[Entry, Sequence[str]], Child]


def launch(entry: Entry, among: Sequence[str]) -> Child:
    """Start start.py for an entry on devices chosen from `among`, where and as the entry was queued."""
    environment, folder = entries.environment_of(entry.run)
    command = [sys.executable, "-P", "-m", "gputui.engine.queue.start", entry.run, repr(entry.started_at), *among]
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=environment, cwd=folder or "/", text=True,
        start_new_session=True,
    )  # fmt: skip


class Runner:
    """Carries out the queue of this home: call `tick` repeatedly, then `close`."""

    def __init__(
        self, read_devices: Callable[[], Sequence[Device]] | None = None, launch: Launch = launch, boot_id: str = ""
    ) -> None:
        self._read_devices, self._launch = read_devices or queue_devices.DeviceReader(), launch
        self._fair_share, self._slurm = FairShare(), SlurmFollower()
        self._settings, self._settings_stamp = queue_settings.Settings(), 0.0
        self._gpus = entries.news().gpus or 0
        self._boot_id = boot_id or Place.here().boot_id
        self._children: dict[str, tuple[Child, frozenset[str]]] = {}  # with the devices that they may take
        self._not_before: dict[str, tuple[float, float]] = {}  # the next try, and the seconds before it
        self._reader = ListingReader()
        self._walked_at = -WALK_SECONDS
        self._news = News()  # as last written, without the failures
        self._why: dict[str, str] = {}
        self._delayed: list[str] = []  # the runs that wait although their devices are free
        self._devices: Sequence[Device] = ()
        self._ended: list[Job] = []
        self._faults: dict[str, str] = {}  # the last exceptions of entries, which are printed once

    def tick(self) -> bool:
        """Follow the entries that have begun, and start those that can start. False if the queue is empty."""
        changed = self._reader.read()
        changed |= self._slurm.follow([entry for entry in self._reader.listing.entries if entry.is_of_slurm])
        for entry in self._entries:
            if entry.state in BEGUN_STATES:
                try:
                    changed |= self._follow(entry)
                except Exception as fault:  # noqa: BLE001 - the other entries go on
                    self._fault(entry, fault)
        if changed or time.monotonic() - self._walked_at >= WALK_SECONDS:
            self._reader.read()
            self._walked_at = time.monotonic()
            self._walk()
            why = {name: reason for name, reason in (self._why | self._slurm.why).items() if reason}
            if (news := News(os.getpid(), self._gpus, self._devices, why, self._delayed)) != self._news:
                with entries.locked():  # others change the failures, too
                    entries.write_news(replace(news, failures=entries.news().failures))
                self._news = news
        return bool(self._reader.listing.entries)

    @property
    def _entries(self) -> Sequence[Entry]:
        return [entry for entry in self._reader.listing.entries if not entry.is_of_slurm]

    def _fault(self, entry: Entry, fault: Exception) -> str:
        words = f"{type(fault).__name__}: {fault}"
        if self._faults.get(entry.run) != words:
            self._faults[entry.run] = words
            print(f"{time.strftime('%F %T')} {entry.run}: {words}", flush=True)
        return f"the runner cannot start it: {words}"

    def close(self) -> None:
        """Remove this user's ticket, which other users see."""
        self._fair_share.close()

    @property
    def ended(self) -> list[Job]:
        """Since this runner began, in the order of their ends."""
        return [job for job in (*self._ended, *self._slurm.ended) if job.exists()]

    # ---- those that have begun ---------------------------------------------------------------------

    def _follow(self, entry: Entry) -> bool:
        """Update a started entry whose process has begun or ended. True if the entry may have changed."""
        if entry.run in self._children:
            child, _ = self._children[entry.run]
            if child.poll() is None:
                return False
            del self._children[entry.run]
            return self._settle(entry, child.returncode, (child.stdout.read() if child.stdout else "").strip())
        if entry.state == "starting":
            return self._settle(entry, None, "")
        if entry.job.is_alive():
            is_sweep = entry.devices and entry.what == SWEEP
            if is_sweep and any(part_of_sweep.read(other.folder).sweep == entry.run for other in self._entries):
                return self._change(entry, lambda current: replace(current, devices=()))  # they are for its trials
            return False
        stranger = self._stranger(entry)
        return self._change(entry, lambda current: self._after_end(current, stranger))

    def _stranger(self, entry: Entry) -> str:
        if entry.displaced_by or not entry.job.exists() or entry.job.end_of().state != OUT_OF_MEMORY:
            return ""
        users = (f"{device} is used by {user}" for device in self._read_devices() if device.name in entry.devices
                 for user in device.strangers)  # fmt: skip
        return next(users, "")

    def _change(self, entry: Entry, act: Callable[[Entry], Entry | None]) -> bool:
        """Replace an entry by the result of `act` (None: remove it), unless it was started again. Returns True."""
        with entries.locked():
            current = entries.read(entry.run)
            if current is None or current.started_at != entry.started_at or current.state not in BEGUN_STATES:
                return True
            after = act(current)
            if after is None:
                self._ended.append(entry.job)
                entries.discard(entry.run)
            elif after != current:
                entries.write(after)
        return True

    def _settle(self, entry: Entry, code: int | None, reason: str) -> bool:
        """Update an entry after its starting process has ended with `code` (None: an earlier runner's)."""

        def act(current: Entry) -> Entry | None:
            if current.state == "running" or code == BEGUN or current.job.has_begun(current.started_at or 0.0):
                self._not_before.pop(current.run, None)
                return replace(current, state="running")
            if code == REFUSED:
                error = {"kind": "queue", "message": reason or "the run could not be started", "hint": ""}
                current.job.close("error", error)
                self._count_failure(current, current.job.end_of())
                return None
            if code is not None:
                _, before = self._not_before.get(current.run, (0.0, AGAIN_SECONDS / 2))
                seconds = min(2 * before, LONGEST_AGAIN_SECONDS)
                self._not_before[current.run] = time.monotonic() + seconds, seconds
                self._why[current.run] = reason or "its start was interrupted; it is tried again"
            return replace(current, state="waiting", tries=max(0, current.tries - 1))

        return self._change(entry, act)

    def _after_end(self, entry: Entry, stranger: str) -> Entry | None:
        """The entry if it starts again later: it gave way, was lost with tries left, or a `stranger` took memory."""
        if not entry.job.exists():
            return None
        end = entry.job.end_of()
        rule = entry.folder.ended_by_rule if entry.kind != PROOF else ""
        if end.state == "stopped" and (entry.yields or rule == "give_way"):
            return _returned(entry)
        if end.state == "stopped" and rule == "pause":
            return replace(_returned(entry), state="held", hold_reason="a rule of run.watch has paused it")
        if stranger:
            print(f"{time.strftime('%F %T')} {entry.run} ran out of memory and waits again: {stranger}", flush=True)
            return replace(_returned(entry), displaced_by=stranger)
        is_lost = not end.has_result or end.kind == LOST_GPU
        if end.state == "crashed" and is_lost and entry.tries < entry.most_tries:
            first = min(other.place for other in entries.all_entries())
            return replace(entry, state="waiting", devices=(), place=first - 1)
        if end.state in FAILED:
            self._count_failure(entry, end)
        else:
            entries.set_failures(entry.group, 0)
        return None

    def _count_failure(self, entry: Entry, end: End) -> None:
        """The third failure of a group in a row within 60 s of the start holds its waiting runs; a later one sets 0."""
        if end.at - (entry.started_at or 0.0) > QUICK_SECONDS:
            entries.set_failures(entry.group, 0)
            return
        count = entries.news().failures.get(entry.group, 0) + 1
        entries.set_failures(entry.group, count)
        if count < MOST_FAILURES:
            return
        message = end.message.splitlines()[0]
        why = f"{MOST_FAILURES} runs of {entry.group} failed within a minute of their start: {message}"
        for other in entries.all_entries():
            is_waiting = other.state == "waiting" and not other.is_of_slurm
            if other.group == entry.group and is_waiting and other.run != entry.run:
                entries.write(replace(other, state="held", hold_reason=why))
        print(f"{time.strftime('%F %T')} {entry.group} is held: {why}", flush=True)

    # ---- those that wait ---------------------------------------------------------------------------

    def _walk(self) -> None:
        """Start entries in their order; devices for which one waits are kept from those after it."""
        if not any(entry.state == "waiting" or entry.gives_way for entry in self._entries):
            self._fair_share.exchange_tickets((), self._gpus)
            if isinstance(self._read_devices, queue_devices.DeviceReader):
                self._read_devices.close()
            return
        if (stamp := queue_settings.stamp()) != self._settings_stamp:
            self._settings, self._settings_stamp = queue_settings.read(), stamp
            if isinstance(self._read_devices, queue_devices.DeviceReader):
                self._read_devices.idle_seconds = self._settings.idle_seconds
        seen = self._read_devices()
        self._gpus = queue_devices.shown_at_once(seen)
        begun: defaultdict[str, list[Entry]] = defaultdict(list)
        for entry in self._entries:
            if entry.state in BEGUN_STATES:
                for name in self._children[entry.run][1] if entry.run in self._children else set(entry.devices):
                    begun[name].append(entry)
        self._delayed, self._devices = [], queue_devices.as_news(seen)
        seen = [_held_by_queue(device, self._entries) for device in seen]
        kept: set[str] = set()
        self._why = {entry.run: "" for entry in self._entries} | {
            name: why for name, why in self._why.items() if name in self._not_before
        }
        paused, hours = entries.PAUSED_REASON if entries.is_paused() else "", self._settings.hours
        if not paused and hours is not None and not self._settings.is_time():
            paused = f"{queue_settings.path()} starts runs from {hours[0]}:00 to {hours[1]}:00"
        free = [device.name for device in seen if not device.holder and device.name not in begun]
        self._fair_share.exchange_tickets([] if paused else list(self._able()), self._gpus)
        for entry in self._entries:
            if entry.state == "held":
                self._why[entry.run] = entry.hold_reason
            elif entry.state == "waiting":
                try:
                    why = paused or self._start_or_why(entry, seen, begun, kept, free)
                except Exception as fault:  # noqa: BLE001 - the other entries go on
                    why = self._fault(entry, fault)
                displaced = f"; it ran out of memory before, as {entry.displaced_by}" if entry.displaced_by else ""
                self._why[entry.run] = why and why + displaced
        running = [entry for entry in self._entries if entry.state == "running"]
        for name, why in self._fair_share.to_give_way(running, seen, free).items():
            print(f"{time.strftime('%F %T')} {name} gives way: {why}", flush=True)
            entry_changes.ask_to_yield(name)

    def _able(self) -> Iterator[Entry]:
        for entry in self._entries:
            try:
                if entry.state == "waiting" and not _waits_for_another(entry):
                    yield entry
            except Exception as fault:  # noqa: BLE001 - the other entries go on
                self._fault(entry, fault)

    def _start_or_why(
        self, entry: Entry, seen: Sequence[Device], begun: dict[str, list[Entry]], kept: set[str], now: list[str]
    ) -> str:
        """Return why an entry waits. `now` are the free devices; the entry is added to `begun` or `kept`."""
        if not entry.job.exists():
            with entries.locked():
                entries.discard(entry.run)
            return ""
        if other := _waits_for_another(entry):
            return other
        usable, number = queue_devices.usable(entry, seen), queue_devices.count(entry, self._gpus)
        needs = f"needs {queue_devices.needs_in_full(entry, self._gpus)}"
        if len(usable) < number or not usable:
            return f"{needs}, which this machine does not have"
        usable = queue_devices.allowed(usable, self._settings)
        if len(usable) < number:
            return f"{needs}; {queue_settings.path()} leaves too few to the queue"
        open_now = [device for device in usable if device.name not in kept]
        open_now.sort(key=lambda device: device.name in begun)  # a run is faster on a GPU of its own
        chosen = [each.name for each in open_now if queue_devices.has_room(entry, each, begun.get(each.name, ()))]
        if len(chosen) < number:
            why = queue_devices.why_busy(entry, usable, kept)
            # No more runs begin on as many of the shared GPUs as it lacks, so that these become free for it.
            shared = [each.name for each in open_now if any(on.per_gpu > 1 for on in begun.get(each.name, ()))]
            lacking = sorted((name for name in shared if name not in chosen), key=lambda name: len(begun[name]))
            kept |= {*chosen, *lacking[: number - len(chosen)]}
            return f"{needs}; {why}"
        chosen = chosen[:number]
        kept |= set(chosen)
        more = [name for name in chosen if name not in begun]
        if self._settings.most is not None and len(begun) + len(more) > self._settings.most:
            return f"{needs}; {queue_settings.path()} allows {self._settings.most} at once"
        if user := self._fair_share.turn_of(now, len(more)):
            self._delayed.append(entry.run)
            return f"{needs}; {user}, who has fewer devices or waits longer, goes first"
        if time.monotonic() < self._not_before.get(entry.run, (0.0, 0.0))[0]:
            self._delayed.append(entry.run)
            return self._why.get(entry.run, "")
        self._start(entry, chosen)
        if entry.per_gpu > 1:
            kept -= set(chosen)
        for name in chosen:
            begun[name].append(entry)
        return ""

    def _start(self, entry: Entry, among: Collection[str]) -> None:
        with entries.locked():
            current = entries.read(entry.run)
            if current is None or current.state != "waiting":
                return
            started = replace(current, state="starting", tries=current.tries + 1, started_at=time.time(), devices=())
            started = replace(started, boot_id=self._boot_id)
            entries.write(started)
        self._children[entry.run] = self._launch(started, list(among)), frozenset(among)


def _returned(entry: Entry) -> Entry:
    tries = max(0, entry.tries - 1)
    return replace(entry, state="waiting", devices=(), yields=False, tries=tries, returned_at=time.time())


def _held_by_queue(device: Device, listed: Sequence[Entry]) -> Device:
    names = [entry.name for entry in listed if entry.state in BEGUN_STATES and device.name in entry.devices]
    words = f"{' and '.join(names)} {'trains' if len(names) == 1 else 'train'} on it"
    words += f" ({device.places})" if device.places else ""
    return replace(device, holder=words, shut=words) if names else device


def _waits_for_another(entry: Entry) -> str:
    state = jobs.state_if_not_ended(entry.after) if entry.after else ""
    return f"after {entries.name_of(entry.after)}, which is {state}" if entry.after and state else ""


def carry_out(descriptor: int | None) -> int:
    """Until no entry is left, or at once if another process is the runner. `descriptor` is of its lock."""
    lock = entries.take_runner_lock(descriptor)
    if lock is None:
        return 0
    runner = Runner()
    try:
        go_on(entries.all_entries())
    except OSError as fault:
        print(f"{time.strftime('%F %T')} {fault}", flush=True)
    while True:
        try:
            if not runner.tick():
                with entries.locked():  # an entry that is added from now on starts another runner
                    if not entries.listing().entries:
                        runner.close()
                        lock.release()
                        break
        except Exception as fault:  # noqa: BLE001 - without a runner nothing would start
            words = str(fault) if isinstance(fault, OSError | RunError) else f"{type(fault).__name__}: {fault}"
            print(f"{time.strftime('%F %T')} {words}", flush=True)
            time.sleep(LONGEST_AGAIN_SECONDS)
        time.sleep(TICK_SECONDS)

    send(runner.ended)
    return 0


MOST_NAMES = 5  # of failed runs in a notice


def send(ended: Sequence[Job]) -> None:
    """Send the notice about the jobs that have ended. A failure is printed to the runner's log."""

    def make() -> sending.Notice:
        failed = [job.path.name for job in ended if job.end_of().state in FAILED]
        names = ", ".join(failed[:MOST_NAMES]) + (" ..." if len(failed) > MOST_NAMES else "")
        result = f"the queue is empty: {len(ended)} ended" + (
            f", {len(failed)} of them failed: {names}" if failed else ""
        )
        return sending.Notice("queue", "failed" if failed else "ok", bool(failed), result=result)

    if ended:
        for line in sending.send_to(lambda: targets.of_options({}), make):
            print(f"{time.strftime('%F %T')} {line}", flush=True)


def interrupted(listed: Iterable[Entry]) -> dict[Path, str]:
    """The folders of the entries' sweeps whose process a restart of this machine has ended, with one run's id."""
    here = Place.here()
    ended: dict[Path, str] = {}
    for entry in listed:
        sweep = part_of_sweep.read(entry.folder).sweep
        path = proofs_folder() / sweep
        if not sweep or path in ended:
            continue
        record = typed.read_usable(path / "proof.json", ProofState)
        place = Place.read(vars(record))
        is_of_here = place is not None and place.host == here.host and place.boot_id != here.boot_id
        if record.state == "running" and is_of_here:
            ended[path] = entry.run
    return ended


def go_on(listed: Iterable[Entry]) -> list[Path]:
    """Start the process of each sweep in `interrupted`, in the environment of its run; return their folders."""
    begun = []
    for path, run in interrupted(listed).items():
        from ..proof import folder  # the runner, which stays in memory for days, does without it
        from ..proof.request import ProofError  # the same

        environment, directory = entries.environment_of(run)
        try:
            folder.start(folder.Proof(path), environment=environment, directory=directory or "/")
        except locks.Taken:  # its user has resumed it
            continue
        except (ProofError, OSError) as fault:
            print(f"{time.strftime('%F %T')} the sweep {path.name} does not go on: {fault}", flush=True)
            continue
        print(f"{time.strftime('%F %T')} the sweep {path.name} goes on after a restart of the machine", flush=True)
        begun.append(path)
    return begun
