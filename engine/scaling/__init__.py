"""Measures how the speed of a training grows with the number of its replicas.

A measurement of scaling is a proof of kind `scaling` (engine/proof): it has a folder, a record and a process like any
proof, and its trials are runs. What is asked and found is declared in proof/scaling.py, and proof/scaling_words.py puts
it in words.

    asking.py     the request, and what is refused before anything is measured
    measuring.py  rounds of trials, one for each number of replicas
"""
