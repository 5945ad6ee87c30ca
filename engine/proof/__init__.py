"""Measures whether a change of options really helps: short alternating trials of before and after, in new processes.

A proof has its own folder and its own process (`python -P -m gputui.engine.proof`); viewers only read the folder.

What is asked, and where it is kept:
    request.py            what is measured, and what is refused before anything is
    sharing.py            what else trains on the same devices, so that the proof is not begun
    resuming.py           going on with what has ended before its time
    estimate.py           how long it will take
    folder.py             the proof folder: create, start, list, find, stop
    record.py             proof.json: everything that is known so far, replaced after every change
    row.py                one trial in it
    search.py             what a search (engine/tune) has found so far, in it
    scaling.py            how the speed grows with the replicas (engine/scaling), in it

How it is measured:
    process.py            the process: whatever is carried out, its record ends with a state
    loop.py               baseline, diagnosis, remedy, comparison, and again
    trial.py              one training of a few measured seconds
    watching.py           its speed while it runs, so that a clearly slower one is ended before its time
    schedule.py           the learning rates that a trial has in common with the real run
    comparing.py          trials of two settings in turn, and the rule by which a change is called faster
    diagnostic_trials.py  without the input, and with a profile
    diagnosing.py         the verdict on a trial, and the remedy that is tried next
    learning.py           changes that change what is learnt, and the loss of both sides

What comes of it:
    sentences.py          each result in a sentence, shared by all views
    efficiency.py         what more replicas bring, relative to their number
    scaling_words.py      a measurement of scaling in words and as a table
    markdown.py           the report
    improved_preset.py    the preset with the changes that were kept
    value_reasons.py      why each of its changed values stands, for its comments
"""

LEAST_REPEATS = 3  # pairs of trials; fewer do not show their spread
TRIAL_SECONDS = 5.0  # measured in each trial, unless asked otherwise
RESUMABLE = ("stopped", "crashed", "failed")  # states of a search or a measurement of scaling that can be gone on with
KEEPS = ("per-replica", "global")  # which batch size stays the same with more replicas: weak and strong scaling
# What a search (engine/tune) goes through, in this order.
STAGES = ("batch_size", "steps_per_execution", "precision", "xla", "strategy", "input", "threads")
