"""The command line: the command `gputui`, its subcommands with their options and help; commands/ is what they do."""

from .command import cli, main, run

__all__ = ["cli", "main", "run"]
