"""`python -P -m gputui.engine.proof PROOF_DIR`: the process of one proof."""

from __future__ import annotations

import sys
from pathlib import Path

from .process import Site, main


def prove(site: Site) -> None:
    from .proof_loop import Prover  # loaded after the first sign of life in proof.json

    Prover(site.request, site.record, site.bench, site.machine).prove()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), prove))
