"""`python -P -m gputui.engine.sweep PROOF_DIR`: the process of one sweep."""

from __future__ import annotations

import sys
from pathlib import Path

from ..proof.process import Site, main


def sweep(site: Site) -> None:
    from .shared_study import SharedStudy  # the same
    from .sweep_loop import SweepLoop  # loaded after the first sign of life in proof.json
    from .trainings import QueuedTrainings  # the same

    trainings = QueuedTrainings(site.request, site.record.id)
    study = SharedStudy(site.request) if site.request.sweep and site.request.sweep.study else None
    SweepLoop(site.request, site.record, trainings, site.bench.stop, study=study).run()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sweep))
