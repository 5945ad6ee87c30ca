"""The package gputui for an interpreter in which it is not installed: it leads to where gputui's source lies."""

from pathlib import Path

__path__ = [str(Path(__file__).resolve().parents[3])]
