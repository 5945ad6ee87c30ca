"""Measures candidates: which settings there are to try, how trials are carried out, and what is faster.

search_space.py      which options are tried, with which values
search_trials.py     trials that are measured once, also several on GPUs of their own, and end with the search's time
screening.py         candidates, one after another, against the best settings so far
judgement.py         whether a candidate is faster, by its speed and by its waits, and whether that may be chance
"""
