"""How a fit reports on itself while it runs."""

from __future__ import annotations

from collections.abc import Callable

Callback = Callable[[int, float], None]  # the round, from 0, and the objective after it
