"""`python -P -m gputui.engine.scaling PROOF_DIR`: the process of one measurement of scaling."""

from __future__ import annotations

import sys
from pathlib import Path

from ..proof.process import Site, main


def measure(site: Site) -> None:
    from .rounds import Rounds  # loaded after the first sign of life in proof.json

    Rounds(site.request, site.record, site.bench, site.earlier).measure()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), measure))
