"""Packed codes, deterministic products and compiled functions."""
