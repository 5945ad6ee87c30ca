"""Runs: a folder for each, with its files, its events and who lives in it. What others use is named here."""

from __future__ import annotations

from .reading import Tail
from .run import (
    GOES_ON,
    Follower,
    Run,
    RunError,
    Survey,
    all_runs,
    create,
    create_at,
    delete,
    find,
    follow,
    home,
    request_stop,
    reserved,
    runs_folder,
    signal_process,
    survey,
)

__all__ = [
    "GOES_ON", "Follower", "Run", "RunError", "Survey", "Tail", "all_runs", "create", "create_at", "delete", "find",
    "follow", "home", "request_stop", "reserved", "runs_folder", "signal_process", "survey",
]
