"""`PYTHON run_module.py -m MODULE WORDS` does what `python -P -m MODULE WORDS` does in a Python with gputui installed.

Python itself puts the folder of this file first on the path, instead of the current folder.
"""

import os
import runpy
import sys

if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    if here not in sys.path:  # PYTHONSAFEPATH is set
        sys.path.insert(0, here)
    module = sys.argv[2]
    del sys.argv[1:3]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
