"""The content of the form, without a screen: values, errors, undo, and the search for options."""
