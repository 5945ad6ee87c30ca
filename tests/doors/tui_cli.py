from gputui.tui.cli import cli as cli_cli, completion, preset_or_command
from gputui.tui.cli.command import cli as command_cli
from gputui.tui.cli.completion import Bash
