"""Past one process and one memory."""
