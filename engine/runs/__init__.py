"""Runs: their folders, files, events and state. The functions that other packages use are named here."""

from __future__ import annotations

from ..files.places import home, runs_folder
from .control import ASKED_BY_PERSON, request_stop, reserved, signal_process
from .folders import Survey, all_runs, create, create_at, find, survey
from .following import Follower, follow
from .reading import Tail
from .run import GOES_ON, Run, RunError
from .titles import title

__all__ = [
    "ASKED_BY_PERSON",
    "GOES_ON",
    "Follower",
    "Run",
    "RunError",
    "Survey",
    "Tail",
    "all_runs",
    "create",
    "create_at",
    "find",
    "follow",
    "home",
    "request_stop",
    "reserved",
    "runs_folder",
    "signal_process",
    "survey",
    "title",
]
