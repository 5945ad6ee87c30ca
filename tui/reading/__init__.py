"""Reads run folders into snapshots of a moment. Imports no Textual."""
