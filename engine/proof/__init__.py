"""Measures whether a change of options really helps: short alternating trials of before and after, in new processes.

A proof has its own folder and its own process (`python -P -m gputui.engine.proof`). Viewers only read the folder. A
search for the fastest settings (engine/tune) and a measurement of scaling (engine/scaling) are proofs, too.

    request.py          the request, and what is refused before the first measurement
    proof_start.py      starting a proof, resuming one, and other trainings on its devices
    duration.py         how long it will take
    folder.py           the proof folder: create, start, list, find, stop
    process.py          the process: its record always ends with a state
    proof_loop.py       baseline, diagnosis, remedy, comparison, and again
    trial_diagnosis.py  the diagnosis of a trial, trials without the input and with a profile, the remedy to try next
    markdown.py         the report
    improved_preset.py  the preset with the changes that were kept, and a comment for each of its changed values
"""
