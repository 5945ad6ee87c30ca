"""The target `wandb`: a run of W&B, offline as a folder in gputui's home, or on a server. Offline, W&B has
written nothing for sure before the end. A follower that was killed therefore writes the whole run once more as another
folder, and removes the one before. On a server, W&B says how many rows it has.
Deferred imports: wandb is an optional extra, and takes seconds.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..files.places import home
from ..follow_targets import FOLDER
from ..runs.events import Outcome
from .target import AboutRun, Point

PROJECT = "gputui"  # unless WANDB_PROJECT names another
INIT_SECONDS = 30.0
_ONLINE = ("WANDB_API_KEY", "WANDB_BASE_URL")  # environment variables of somebody who has a server


class Wandb:
    """Writes to the run whose id is the follower's key. `remote` has its present folder, if it is offline."""

    def __init__(self, remote: dict[str, Any]) -> None:
        self.remote, self.where = remote, ""
        self._run: Any = None

    def open(self, about: AboutRun, key: str) -> int | None:
        """Offline, begin it again."""
        import wandb

        mode = os.environ.get("WANDB_MODE") or ("online" if any(map(os.environ.get, _ONLINE)) else "offline")
        folder = os.environ.get("WANDB_DIR") or str(home() / FOLDER)
        Path(folder).mkdir(parents=True, exist_ok=True)
        if self._run is not None:  # the call that failed was of this run
            run, self._run = self._run, None
            run.finish(exit_code=1)
        before = Path(self.remote.pop("folder", ""))
        if before.name.startswith("offline-run-") and before.name.endswith(f"-{key}"):
            shutil.rmtree(before, ignore_errors=True)
        try:
            self._run = wandb.init(
                project=os.environ.get("WANDB_PROJECT") or PROJECT,
                id=key,
                name=about.id,
                dir=folder,
                mode=mode,
                resume="allow",
                config={**about.options, "title": about.title},
                tags=list(about.tags),
                notes=about.note,
                settings=wandb.Settings(
                    console="off",  # the follower's own output
                    silent=True,
                    x_disable_stats=True,  # the figures of GPUs and host are those of the run
                    disable_git=True,
                    save_code=False,
                    init_timeout=INIT_SECONDS,
                ),
            )
        except BaseException:
            wandb.teardown()  # its service would refuse the id at the next attempt, as in use
            raise
        self._run.define_metric("*", step_metric="step")
        if mode != "offline":
            self.where = str(self._run.url)
            return int(self._run.step)
        self.remote["folder"] = self.where = str(Path(self._run.dir).parent)
        return 0

    def write(self, points: Sequence[Point]) -> None:
        for point in points:
            if point.is_result:
                self._run.summary.update(dict(point.figures))
            row = {**point.figures, "step": point.step, "_timestamp": point.t}
            self._run.log(row, step=point.number)

    def end(self, _about: AboutRun, outcome: Outcome) -> None:
        self._run.summary.update({"outcome": outcome})
        run, self._run = self._run, None
        run.finish(exit_code=0 if outcome == "ok" else 1)
