"""Recommender: a fitted model, its encoders, its items and its file."""
