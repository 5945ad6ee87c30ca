"""The ordered search: one option after another, each where its gain can be seen.

ordered.py          the order of the stages
device.py           the options of the device, and which of them are tried once more, as others hid their gain
input.py            the ceiling without any input, and the options of the input until it is reached
second_look.py      further measurements of what chance may have rejected
"""
