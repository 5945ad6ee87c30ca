"""The commands about gputui and this machine, declared for the command line: doctor, gpus, lease, serve and completion.
Deferred imports: a command pays only for what it uses."""

from __future__ import annotations

from collections.abc import Sequence

import click
from click.shell_completion import get_completion_class

from .completion import VARIABLE


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a script for tab completion in SHELL.

    It completes commands, presets, runs, proofs and options.

    \b
    bash    echo 'eval "$(gputui completion bash)"' >> ~/.bashrc
    zsh     echo 'eval "$(gputui completion zsh)"' >> ~/.zshrc        after compinit
    fish    gputui completion fish > ~/.config/fish/completions/gputui.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None, "click knows these shells"
    completer = kind(context.find_root().command, {}, "gputui", VARIABLE)
    print(completer.source_template % completer.source_vars())


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as one JSON object.")
@click.option("--deep", is_flag=True, help="Also import TensorFlow to see which GPUs it finds; takes up to 20 s.")
@click.option(
    "--python", metavar="PATH", help="The Python that trains, as run.python; by default GPUTUI_PYTHON or gputui's own."
)
@click.pass_context
def doctor(context: click.Context, as_json: bool, deep: bool, python: str | None) -> None:
    """Check GPUs, driver, TensorFlow and host for problems.

    The exit code is 1 if something prevents training on the GPUs, or on the CPU of a machine without GPUs.
    """
    from ..commands import doctor as doctor_command

    context.exit(doctor_command.show_doctor(as_json, deep, python))


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per GPU and line; [] if there is none.")
def gpus(as_json: bool) -> None:
    """Show which GPUs are free, and who uses the others.

    A GPU is free for device.visible=free:N if no process computes on it, its memory is not used, and nobody has leased
    it.
    """
    from ..commands import gpus as gpus_command

    gpus_command.show_gpus(as_json)


@click.command()
@click.option("--port", type=click.IntRange(1024, 65535), default=8000, show_default=True, help="Port of localhost.")
@click.pass_context
def serve(context: click.Context, port: int) -> None:
    """Show the screens in a browser.

    The browser needs the printed address, whose token keeps other users of the machine out. From another machine, it
    reaches the port through an SSH tunnel, whose command is printed.
    """
    from ..commands import serve as serve_command

    context.exit(serve_command.serve(port))


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("gpus", metavar="N[@KIND]")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND...")
@click.option("--wait", is_flag=True, help="Wait until N GPUs are free.")
@click.pass_context
def lease(context: click.Context, gpus: str, command: Sequence[str], wait: bool) -> None:
    """Run any program on N free GPUs.

    No other user of gputui takes them until the program ends.

    \b
    gputui lease 1 -- python train.py            a GPU that nobody uses
    gputui lease --wait 2@40GB -- torchrun ...   two with 40 GB or more, as soon as they are free

    The program finds them in CUDA_VISIBLE_DEVICES. The exit code is that of the program.
    """
    from ..commands import gpus as gpus_command

    context.exit(gpus_command.run_on_leased(gpus, command, wait))
