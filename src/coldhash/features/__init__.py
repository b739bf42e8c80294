"""User and item tables -> named groups of feature matrices."""
