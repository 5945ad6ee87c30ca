"""Runs: their folders, files, events and state. The functions that other packages use are named here. A run: run.py
(files and state, is it alive; stop, signal, reserve), folders.py (create, list, find), trash.py (delete, restore). Its
events: events.py (declarations, names of their files), parsing.py (one event, written and read), event_reading.py
(files, also as they are written). Other files of its folder: launched_with.py (options, Python), titles.py (preset and
changes; note and tags), results.py (also as rows over time), checkpoint_files.py, code_files.py and code_copy.py (the
user's own code), run_cluster.py (several machines).
"""

from __future__ import annotations

from ..files.places import home, runs_folder
from .event_reading import Follower, Tail, follow
from .folders import Survey, all_runs, create, create_at, find, survey
from .run import ACTIVE_STATES, ASKED_BY_PERSON, Run, RunError, request_stop, reserved, signal_process, waiting_error
from .titles import title

__all__ = [
    "ACTIVE_STATES", "ASKED_BY_PERSON", "Follower", "Run", "RunError", "Survey", "Tail", "all_runs", "create",
    "create_at", "find", "follow", "home", "request_stop", "reserved", "runs_folder", "signal_process", "survey",
    "title", "waiting_error",
]  # fmt: skip
