"""Codes -> the nearest codes, exactly."""
