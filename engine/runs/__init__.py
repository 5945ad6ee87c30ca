"""Runs: their folders, files, events and state. The functions that other packages use are named here."""

from __future__ import annotations

from ..files.places import home, runs_folder
from .event_reading import Follower, Tail, follow
from .folders import Survey, all_runs, create, create_at, find, survey
from .run import ACTIVE_STATES, ASKED_BY_PERSON, Run, RunError, not_ended_error, request_stop, reserved, signal_process
from .titles import title

__all__ = [
    "ACTIVE_STATES", "ASKED_BY_PERSON", "Follower", "Run", "RunError", "Survey", "Tail", "all_runs", "create",
    "create_at", "find", "follow", "home", "not_ended_error", "request_stop", "reserved", "runs_folder",
    "signal_process", "survey", "title",
]  # fmt: skip
