"""The form: every option in a row, its help, errors and warnings, and Start; its changes, values and texts."""
