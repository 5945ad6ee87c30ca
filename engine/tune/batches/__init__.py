"""Finds batch sizes: the fastest and the largest that fits, by a prediction of the memory that they take.

batch_size.py       the fastest: doubling, halving, bisecting
largest_batch.py    the largest batch that fits, although another one may be faster
memory.py           what batches have taken, what may be taken, what is predicted
memory_line.py      a line through batches and their memory that one odd point does not turn
prediction.py       the memory of a preset without a search (`--dry-run`)
"""
