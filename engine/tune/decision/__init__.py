"""Decides which of the measured settings are chosen, and whether their gain is proved.

deciding.py         which settings are chosen, and the pairs that prove their gain
losses.py           the loss of settings beside that of the preset, after the same number of samples
training_length.py  how many samples those are
learning_rate.py    the learning rate for another batch size
fallbacks.py        settings to take where the fastest learn clearly worse
"""
