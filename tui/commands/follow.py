"""The command `gputui follow`: writes the figures of a run to TensorBoard, MLflow and others while the run goes on."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence

from ...engine import runs as run_folders
from ...engine.files import writing
from ...engine.follow import start
from ...engine.follow.start import FollowerState
from ...engine.runs import Run
from ...engine.units import counted
from ..base.errors import DONE, FAILED, INTERRUPTED, Refused, clean, complain

POLL_SECONDS = 0.2


def follow_run(name: str, targets: Sequence[str], detach: bool) -> int:
    """Start a follower of the run for each target and, without `detach`, wait until they have ended. Without targets,
    print the run's followers. Ctrl-C ends the followers, which go on from their places later. Raises Refused if the
    library of a target is missing, or if the disk of the run takes nothing more."""
    run, targets = run_folders.find(name), tuple(dict.fromkeys(targets))
    if not targets:
        if detach:
            raise Refused("--detach needs --to TARGET")
        _show(run)
        return DONE
    if lines := start.missing(targets):
        raise Refused("\n".join(lines))
    if full := writing.try_writing(run.path):
        raise Refused(f"{full}; a follower notes there how far it is")
    followers = {target: start.start(run.path, target) for target in targets}
    if detach:
        print(f"{run.name} is followed in the background; gputui follow {run.name} shows how far it is")
        return DONE
    try:
        return _wait(run, followers)
    except KeyboardInterrupt:
        for process in followers.values():
            process.terminate()
        complain(f"gputui follow {run.name} {' '.join(f'--to {target}' for target in targets)} goes on from here")
        return INTERRUPTED


def _show(run: Run) -> None:
    states = start.states(run.path)
    if not states:
        raise Refused(
            f"{run.name} has no followers; --to tensorboard starts one, and gputui follow --help lists others"
        )
    for state in states:
        print(clean(f"{state.target}: {_line(state)}"))


def _line(state: FollowerState) -> str:
    where = f" to {state.place.where}" if state.place.where else ""
    return f"{state.words}, {counted(state.place.number, 'rows')} written{where}"


def _wait(run: Run, followers: dict[str, subprocess.Popen[bytes]]) -> int:
    """Print each change of the followers' states until all have ended. DONE if all have written everything."""
    code, words = DONE, dict.fromkeys(followers, "")
    while followers:
        time.sleep(POLL_SECONDS)
        for target, process in list(followers.items()):
            ended, state = process.poll() is not None, start.state(run.path, target)
            if ended and process.returncode == 0 and state.is_alive:
                continue  # another follower of this target goes on
            if ended:
                del followers[target]
                code = code if process.returncode == 0 else FAILED
                print(clean(f"{target}: {_line(state)}"), flush=True)
            elif state.is_alive and state.place.problem != words[target]:
                words[target] = state.place.problem
                complain(f"{target}: {state.words}")
    return code
