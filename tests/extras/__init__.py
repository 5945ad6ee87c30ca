"""What needs a library of an extra, tested with the real one: `make test-extras`."""
