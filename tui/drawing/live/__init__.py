"""The parts of the live view as rows: head, messages, phases, results, and how they share the screen."""
