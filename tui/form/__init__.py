"""What the form holds, without a screen."""
