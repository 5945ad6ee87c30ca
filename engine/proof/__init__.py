"""Whether a change of options really helps: short trials of before and after, in turn, each in fresh processes.

Separates measuring a change (here) from guessing which one to try (diagnosis.py, remedies.py) and from showing the
result (the views). A proof is a folder of its own with a process of its own; viewers meet it only there.

    request.py    what is asked, and what is refused before anything is measured
    folder.py     the proof folder: create, start, list, find, stop
    sharing.py    what else trains on its devices, so that it is not begun
    record.py     proof.json: everything that is known so far, replaced after every change
    trial.py      one training of a few measured seconds
    comparing.py  trials of two settings in turn, and what happens when one dies
    pairs.py      the statistics and the rule by which a change is kept
    learning.py   changes that change what is learnt, and the loss of both sides
    ablation.py   what the input costs, found by taking it away
    diagnosing.py the verdict on a trial, and what is left of an earlier one
    profiling.py  a trial whose steps are profiled
    loop.py       diagnosis, remedy (picking.py), comparison, and again
    improved.py   the preset that came of it, saved
    profiled.py   the profile, read back
    words.py, markdown*.py  the same for people
"""
