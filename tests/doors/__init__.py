"""What tests use of the product, one module for each of its packages. Tests import the product through these alone, so
that a module of the product can be moved, split or joined by a change of one line here (tests/test_house.py).
"""
