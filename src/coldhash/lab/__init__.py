"""Experiments, tuning, figures, and the reproduction of the paper."""
