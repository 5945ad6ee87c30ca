"""What tests use of the product. Tests import it through these three modules alone, so that a module of the product can
be moved, split or joined by a change of one line here. A name that two modules have stands with its module before it.
"""
