"""`python -P -m gputui.engine.tune PROOF_DIR`: the process of one search.
Deferred imports: the search is loaded after the first sign of life in proof.json.
"""

from __future__ import annotations

import sys
from pathlib import Path

from ..proof.process import Site, main


def search(site: Site) -> None:
    if site.request.rate is not None:
        from .rate_test import RangeTest

        RangeTest(site.request, site.record, site.bench, site.earlier).run()
    elif site.request.search is not None and site.request.search.dry_run:
        from .dry_run import Prediction

        Prediction(site.request, site.record, site.bench, site.machine, site.earlier).run()
    else:
        from .search import Searcher

        Searcher(site.request, site.record, site.bench, site.machine, site.earlier).run()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), search))
