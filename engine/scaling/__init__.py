"""Measures how the speed of a training grows with the number of its replicas.

A measurement of scaling is a proof of kind `scaling` (engine/proof): it has a folder, a record and a process like any
proof, and its trials are runs. The form of its request and its results is in trials/record.py, and
trials/scaling_sentences.py puts them in words.

    scaling_request.py  the request, and what is refused before anything is measured
    rounds.py           rounds of trials, one for each number of replicas
"""
