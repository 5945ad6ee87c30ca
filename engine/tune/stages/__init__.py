"""The stages of the ordered search, one option after another, each when its gain can be seen; ../search.py orders them.

device.py           the options of the device, and which of them are tried once more, as others hid their gain
batch_size.py       the fastest batch size, and the largest that fits into memory
input.py            the ceiling without any input, and the options of the input until it is reached
recheck.py          further measurements of candidates that may have been rejected by chance
"""
