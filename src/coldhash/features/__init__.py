"""Side tables -> named groups of content matrices."""
