"""`python -P -m gputui.engine.proof PROOF_DIR`: the process of one proof, whose strategy is loaded after the first sign
of life in proof.json.
"""

import sys
from pathlib import Path

from .process import main

if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
