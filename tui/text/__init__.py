"""What several views say in the same words."""
