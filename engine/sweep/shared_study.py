"""Several machines share one sweep by a study of Optuna, used as a log of entries: trials are added
atomically and in one order, while changes of them are not atomic in SQLite. Members show every 20 seconds that they
live, by the others' clocks; their trials are taken over after ten minutes.
Deferred imports: Optuna is an optional extra, and takes a second.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass, field
from typing import Any

from .. import units
from ..proof.request import Request
from ..system.identity import Place
from ..trials import sweep_record
from ..trials.change_texts import value as text_of
from ..trials.sweep_record import DONE, DROPPED, FAILED, IN_FLIGHT, PAUSED, SEARCH, STOPPED, WAITING, SweepTrial
from ..tune.wide import storage
from ..tune.wide.storage import StudyError
from .trainings import OF_THE_SETTING

OWN_GROUPS = ("run", "device", "notify", "workload.folder", "input.cache")  # options that members may have of their own
SEARCHED = (
    "axes", "metric", "higher", "seeds", "proof_seeds", "finalists", "sampler", "most_trials", "rungs", "factor",
)  # fmt: skip
NAMES = {"axes": "--over", "higher": "--metric", "most_trials": "--trials", "rungs": "--halving"}
TOLD = (*IN_FLIGHT, PAUSED, DONE, FAILED, STOPPED, DROPPED)  # states of its own trials that a member reports
ENTRY, MEMBER = "gputui", "member "  # attributes of a trial, and of the study
BEAT_SECONDS, VANISHED_SECONDS = 20.0, 600.0
SILENT_SECONDS = 150.0  # after that, the record shows when a member was last seen
SYNC_SECONDS = 2.0  # between two readings of the study
QUIET_SECONDS = 15.0  # a part of the sweep ends if no member has claimed or reported anything for so long


def check(request: Request) -> None:
    """Raise StudyError if the study of a sweep cannot be used, or another sweep has begun in it."""
    settings = request.sweep
    if settings is not None and settings.study and storage.exists(settings.study):
        SharedStudy(request).join()


def definition_of(request: Request) -> dict[str, Any]:
    """Return what all members of the sweep have in common, as plain values."""
    values = {name: getattr(request.sweep, name) for name in SEARCHED}
    options = {
        key: value.rstrip("/").rpartition("/")[2] if isinstance(value, str) else value
        for key, value in request.baseline().options.values().items()
        if not {key, key.partition(".")[0]} & {*OWN_GROUPS}
    }
    values["axes"] = [asdict(axis) for axis in values["axes"]]
    values |= {"options": options, "versions": {name: storage.version(name) for name in ("tensorflow", "keras")}}
    plain: dict[str, Any] = json.loads(json.dumps(values | {"seed": request.seed}, default=str))
    return plain


def difference(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """Return the first property in which two definitions differ, in words. Empty if they differ in none."""
    for group in ("options", "versions"):
        for name, value in here[group].items():
            if (other := there.get(group, {}).get(name)) != value:
                return f"{name} (there {text_of(other)}, here {text_of(value)})"
    different = next((name for name in SEARCHED if there.get(name) != here[name]), "")
    return NAMES.get(different, f"--{different.replace('_', '-')}") if different else ""


class SharedStudy:
    """The study that this sweep shares. Only `join` raises StudyError; later faults stand in `away`."""

    def __init__(self, request: Request, vanished_seconds: float = VANISHED_SECONDS) -> None:
        assert request.sweep is not None
        self.away, self.seed = "", request.seed  # why it cannot be used now
        self._request, self._settings = request, request.sweep
        self.location = request.sweep.study or ""
        self.name = f"sweep {request.sweep.study_name or request.preset_name}"
        self._member, self._host, self._vanished_seconds = request.sweep.member, Place.here().host, vanished_seconds
        self._study: Any = None
        self.log = Claims()
        self._synced = self._beaten = -float("inf")
        self._news = 0.0  # the time of the last new entry
        self._seen: dict[str, tuple[Any, float]] = {}  # the latest sign of life of a member, and when it was noticed
        self._alive: dict[str, float] = {}  # when a member has given a sign of life, since this one has joined

    def join(self) -> None:
        mine = definition_of(self._request)
        direction = "maximize" if self._settings.higher else "minimize"  # for other programs that read the study
        self._study = storage.study(self.location, self.name, direction)
        self._read()
        if self.log.definition is None:
            self._add({"op": "begin", "definition": mine})
        begun = self.log.definition
        if begun is None:
            raise StudyError(f"{self.name!r} in {storage.shown(self.location)} is no sweep; give --name")
        if other := difference(begun, mine):
            raise StudyError(
                f"the {self.name} in {storage.shown(self.location)} was begun with other {other}; all members need the "
                "same, or give --name for a sweep of its own"
            )
        self.seed = begun["seed"]

    def _add(self, entry: Mapping[str, Any], value: float | None = None) -> None:
        """Add an entry, and take all new ones into account. Raises StudyError."""
        from optuna.trial import TrialState, create_trial

        before = self.log.count
        state = TrialState.FAIL if value is None else TrialState.COMPLETE
        with storage.faults_of(self.location):
            self._study.add_trial(create_trial(state=state, value=value, user_attrs={ENTRY: dict(entry)}))
        self._read()
        if self.log.count == before:
            raise StudyError(f"an entry in {storage.shown(self.location)} was lost: was the file replaced?")

    def _tell(self, entry: Mapping[str, Any]) -> None:
        try:
            self._add(entry)
        except StudyError as fault:
            self.away = str(fault)

    def _read(self) -> None:
        with storage.faults_of(self.location):
            entries = self._study.get_trials(deepcopy=False)
        for trial in entries[self.log.count :]:
            self.log.take(trial.user_attrs.get(ENTRY) or {})
            self._news = time.monotonic()

    def _beat(self) -> None:
        now = time.monotonic()
        with storage.faults_of(self.location):
            if now - self._beaten >= BEAT_SECONDS:
                self._study.set_user_attr(MEMBER + self._member, {"host": self._host, "beat_t": time.time()})
                self._beaten = now
            attributes = self._study.user_attrs
        signs: dict[str, Any] = {claim.member: None for claim in self.log.claims.values()}
        signs |= {key.removeprefix(MEMBER): sign for key, sign in attributes.items() if key.startswith(MEMBER)}
        for member, sign in signs.items():
            if member not in self._seen or self._seen[member][0] != sign:
                if member in self._seen:
                    self._alive[member] = now
                self._seen[member] = sign, now

    def _silent_seconds(self, member: str) -> float:
        return time.monotonic() - self._seen[member][1] if member in self._seen else 0.0

    def _release(self, key: str, claim: Claim) -> None:
        self._add({"op": "release", "key": key, "token": claim.token, "member": self._member})

    def sync(self, trials: Sequence[SweepTrial], sweep: str, now: bool = False) -> list[SweepTrial]:
        """Report this member's trials, and store in `trials` those of the others, at most each SYNC_SECONDS or `now`.
        Returns copies of its own that train although another member has taken them over.
        """
        if not now and time.monotonic() - self._synced < SYNC_SECONDS:
            return []
        try:
            self._read()
            for trial in trials:
                claim = self.log.claims.get(key_of(trial))
                if claim is None or claim.member != self._member or trial.on or trial.state not in TOLD:
                    continue
                report = json.loads(json.dumps({name: getattr(trial, name) for name in REPORTED}))
                is_news = claim.report != report and not trial.state == claim.state == WAITING
                if is_news and claim.state != DONE:
                    entry = {"op": "report", "key": key_of(trial), "token": claim.token, "report": report}
                    self._add(entry, trial.value if trial.state == DONE else None)
            self._beat()
            for key, claim in list(self.log.claims.items()):
                is_silent = self._silent_seconds(claim.member) >= self._vanished_seconds
                is_open = claim.state not in RESULTS and (claim.part != SEARCH or self.log.choice is None)
                if claim.member != self._member and is_open and is_silent:
                    self._release(key, claim)
            self.away = ""
        except StudyError as fault:
            self.away = str(fault)
        self._synced = time.monotonic()
        lost = [self._adopt(trial, f"{sweep}-{place:03d}") for place, trial in enumerate(trials, 1)]
        return [trial for trial in lost if trial is not None]

    def _adopt(self, trial: SweepTrial, own_run: str) -> SweepTrial | None:
        """Store in a trial what the study says about it. Returns a copy as it was if it is lost while it trains."""
        claim, before = self.log.claims.get(key_of(trial)), copy(trial)
        is_lost = not trial.on and trial.state in IN_FLIGHT
        if claim is not None and claim.member == self._member:
            is_lost = False
        if claim is None or claim.member == self._member:
            if trial.on or is_lost:
                plain = SweepTrial(run=own_run, changes=trial.changes, seed=trial.seed, part=trial.part)
                vars(trial).update(vars(plain))
            return before if is_lost else None
        vars(trial).update({"state": claim.state} | dict(claim.report))
        trial.run, trial.on, silent = claim.run, claim.host, self._silent_seconds(claim.member)
        if claim.state not in RESULTS and silent >= SILENT_SECONDS:
            trial.on += f", last seen {units.estimate(silent)} ago"
        if claim.report.get("state") is None:
            trial.value, trial.rungs, trial.ended_t, trial.error, trial.cause = None, [], None, "", ""
        if trial.state == PAUSED and trial.part == SEARCH and self.log.choice is not None:
            trial.state = DROPPED
        return before if is_lost else None

    def claim(self, trial: SweepTrial) -> bool:
        """Return True if the trial is now this member's, and False if it is another's or the study cannot be used."""
        key = key_of(trial)
        if key not in self.log.claims:
            self._tell({
                "op": "claim", "key": key, "part": trial.part, "run": trial.run, "token": secrets.token_hex(8),
                "member": self._member, "host": self._host,
            })  # fmt: skip
        claim = self.log.claims.get(key)
        return claim is not None and claim.member == self._member

    def propose(self, number: int, changes: Mapping[str, Any]) -> None:
        """Propose the setting `number` of the search; the log has the one that was proposed first."""
        self._tell({"op": "setting", "number": number, "changes": dict(changes)})

    def choose(self, choice: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the finalists that all members have chosen; `choice` if there are none yet. Return None if another
        member trains a trial of the search, or the study cannot be used.
        """
        if self.log.choice is None:
            self._tell({"op": "choice", "choice": dict(choice)})
        return self.log.choice

    def is_over(self, trials: Sequence[SweepTrial], part: str, has_time: bool) -> bool:
        """Return True if no member trains this part any more; with time left, paused ones are waited for."""
        if self.log.choice is not None and part == SEARCH:
            return True
        waits = (*IN_FLIGHT, STOPPED) if has_time else IN_FLIGHT
        if self.away or any(trial.on and trial.part == part and trial.state in waits for trial in trials):
            return False
        pausing = {claim.member for claim in self.log.claims.values() if claim.part == part and claim.state == PAUSED}
        if has_time and any(self._alive.get(member, 0.0) < self._news for member in pausing - {self._member}):
            return False
        others = (member for member in self._seen if member != self._member)
        is_alone = all(self._silent_seconds(member) >= self._vanished_seconds for member in others)
        return is_alone or time.monotonic() - self._news >= QUIET_SECONDS

    def other_code(self, files: Mapping[str, str]) -> str:
        """Return which file of own code another member trained with other content; `files` are hashes."""
        if files.keys() - self.log.code.keys():
            self._tell({"op": "code", "host": self._host, "files": dict(files)})
        for name, (host, digest) in self.log.code.items():
            if files.get(name, digest) != digest:
                wrong = f"{name} differs from that on {host}: all trials have the same code"
                return f"{wrong}; make them equal, and start this member again without --resume"
        return ""

    def leave(self, trials: Sequence[SweepTrial], sweep: str, states: Sequence[str]) -> None:
        """Report this member's trials, and give back those in these `states`, but for failures of a setting."""
        self.sync(trials, sweep, now=True)
        try:
            for trial in trials:
                claim = self.log.claims.get(key_of(trial))
                is_mine = claim is not None and claim.member == self._member
                if claim is not None and is_mine and trial.state in states and trial.cause not in OF_THE_SETTING:
                    self._release(key_of(trial), claim)
        except StudyError as fault:
            self.away = str(fault)


RESULTS = (DONE, FAILED, DROPPED)  # a trial with one of these stays with its member
# Fields of a trial that a member reports.
REPORTED = ("state", "value", "rungs", "seconds", "whole_seconds", "ended_t", "error", "cause")


def key_of(trial: SweepTrial) -> str:
    """Return a text that is the same for the same trial in the record of each member."""
    return f"{trial.part} {trial.seed} {sweep_record.key_of(trial.changes)}"


@dataclass
class Claim:
    """The claim of a member to a trial."""

    token: str
    member: str
    host: str  # the member's machine
    run: str  # the run there
    part: str
    report: Mapping[str, Any] = field(default_factory=dict)  # the fields REPORTED; empty before the first report

    @property
    def state(self) -> str:
        return str(self.report.get("state", WAITING))


@dataclass
class Claims:
    """The state of a shared sweep. Of two claims the earlier counts, so that nobody locks anything."""

    definition: Mapping[str, Any] | None = None
    settings: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    claims: dict[str, Claim] = field(default_factory=dict)
    choice: Mapping[str, Any] | None = None  # of finalists; None during the search
    code: dict[str, tuple[str, str]] = field(default_factory=dict)  # host and hash of each file of own code
    count: int = 0

    def take(self, entry: Mapping[str, Any]) -> None:
        self.count += 1
        claim = self.claims.get(entry.get("key", ""))
        is_own = claim is not None and claim.token == entry.get("token") and claim.state != DONE
        match entry.get("op"):
            case "begin":
                self.definition = self.definition or entry["definition"]
            case "setting":
                if self.choice is None and entry["changes"] not in self.settings.values():
                    self.settings.setdefault(entry["number"], entry["changes"])
            case "claim":
                if entry["part"] != SEARCH or self.choice is None:
                    values = {name: entry[name] for name in ("token", "member", "host", "run", "part")}
                    self.claims.setdefault(entry["key"], Claim(**values))
            case "report":
                if claim is not None and is_own:
                    claim.report = entry["report"]
            case "release":
                if claim is not None and is_own and (claim.state not in RESULTS or claim.member == entry["member"]):
                    del self.claims[entry["key"]]
            case "choice":
                is_open = any(each.part == SEARCH and each.state in IN_FLIGHT for each in self.claims.values())
                if self.choice is None and not is_open:
                    self.choice = entry["choice"]
            case "code":
                for name, digest in entry["files"].items():
                    self.code.setdefault(name, (entry["host"], digest))
