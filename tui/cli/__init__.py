"""The command line: the command `gputui` and its subcommands with their options and help. commands/ carries them
out."""

from .command import cli, main, run

__all__ = ["cli", "main", "run"]
