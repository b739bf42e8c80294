"""Files and frames -> ratings and tables."""
