"""Judging models: who is cold, against what, and what counts as a hit."""
