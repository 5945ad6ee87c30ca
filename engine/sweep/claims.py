"""What members of a shared sweep agree on: trials, results, finalists. It follows from the order of the study's entries
alone: of two claims the earlier counts, so that nobody locks anything, and a second copy of an entry has no effect.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..trials import sweep_groups
from ..trials.sweep_record import DONE, DROPPED, FAILED, IN_FLIGHT, SEARCH, WAITING, SweepTrial

RESULTS = (DONE, FAILED, DROPPED)  # a trial with one of these stays with its member
# Fields of a trial that a member reports.
REPORTED = ("state", "value", "rungs", "seconds", "whole_seconds", "ended_t", "error", "cause")


def key_of(trial: SweepTrial) -> str:
    """Return a text that is the same for the same trial in the record of each member."""
    return f"{trial.part} {trial.seed} {sweep_groups.key_of(trial.changes)}"


@dataclass
class Claim:
    """The claim of a member to a trial. `host` is its machine, `run` the run there, and `report` what it has reported
    of the trial: the fields REPORTED, empty before its first report.
    """

    token: str
    member: str
    host: str
    run: str
    part: str
    report: Mapping[str, Any] = field(default_factory=dict)

    @property
    def state(self) -> str:
        return str(self.report.get("state", WAITING))


@dataclass
class Claims:
    """The state of a shared sweep after the entries so far: the common `definition`, the proposed `settings` by number,
    the valid `claims` by trial, the finalists (`choice`, None during the search), and hashes of the user's `code`.
    """

    definition: Mapping[str, Any] | None = None
    settings: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    claims: dict[str, Claim] = field(default_factory=dict)
    choice: Mapping[str, Any] | None = None
    code: dict[str, tuple[str, str]] = field(default_factory=dict)
    count: int = 0

    def take(self, entry: Mapping[str, Any]) -> None:
        """Take the next entry into account."""
        self.count += 1
        take = getattr(self, f"_take_{entry.get('op')}", None)
        if take is not None:
            take(entry)

    def _take_begin(self, entry: Mapping[str, Any]) -> None:
        self.definition = self.definition or entry["definition"]

    def _take_setting(self, entry: Mapping[str, Any]) -> None:
        is_known = entry["changes"] in self.settings.values()
        if not is_known and self.choice is None:
            self.settings.setdefault(entry["number"], entry["changes"])

    def _take_claim(self, entry: Mapping[str, Any]) -> None:
        if entry["part"] == SEARCH and self.choice is not None:
            return
        values = {name: entry[name] for name in ("token", "member", "host", "run", "part")}
        self.claims.setdefault(entry["key"], Claim(**values))

    def _take_report(self, entry: Mapping[str, Any]) -> None:
        claim = self.claims.get(entry["key"])
        if claim is not None and claim.token == entry["token"] and claim.state != DONE:
            claim.report = entry["report"]

    def _take_release(self, entry: Mapping[str, Any]) -> None:
        claim = self.claims.get(entry["key"])
        if claim is None or claim.token != entry["token"] or claim.state == DONE:
            return
        if claim.state not in RESULTS or claim.member == entry["member"]:
            del self.claims[entry["key"]]

    def _take_choice(self, entry: Mapping[str, Any]) -> None:
        is_open = any(claim.part == SEARCH and claim.state in IN_FLIGHT for claim in self.claims.values())
        if self.choice is None and not is_open:
            self.choice = entry["choice"]

    def _take_code(self, entry: Mapping[str, Any]) -> None:
        for name, digest in entry["files"].items():
            self.code.setdefault(name, (entry["host"], digest))


def new_token() -> str:
    return secrets.token_hex(8)
