"""Searches combinations of many options through Optuna, which proposes them; several machines may share one study.

search_axes.py    what may be combined, and how a combination of the study becomes settings of a preset
members.py        which machines may share a study, and which member of it has ended
storage.py        the file or database of a study, and what is refused of it
study.py          one study: known trials, proposals and what has become of them
wide_search.py    the search: proposals are measured until the time has ended, also on several GPUs at once
"""
