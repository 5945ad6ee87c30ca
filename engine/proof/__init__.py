"""Measures whether a change of options really helps: short alternating trials of before and after, in new processes.

A proof has its own folder and its own process (`python -P -m gputui.engine.proof`); viewers only read the folder. A
search for the fastest settings (engine/tune) and a measurement of scaling (engine/scaling) are proofs, too.

    request.py            what is measured, and what is refused before anything is
    starting.py           what else trains on the same devices, so that the proof is not begun
    resuming.py           going on with what has ended before its time
    duration.py           how long it will take
    folder.py             the proof folder: create, start, list, find, stop
    process.py            the process: whatever is carried out, its record ends with a state
    loop.py               baseline, diagnosis, remedy, comparison, and again
    diagnostic_trials.py  without the input, and with a profile
    trial_diagnosis.py    the verdict on a trial, and the remedy that is tried next
    markdown.py           the report
    improved_preset.py    the preset with the changes that were kept
    value_reasons.py      why each of its changed values stands, for its comments
"""
