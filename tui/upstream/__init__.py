"""Everything that depends on private parts of Textual or of Python, each with the change of them that it waits for."""
