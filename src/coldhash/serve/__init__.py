"""Serve a model over HTTP: `create_app(model)`; the command `coldhash serve` runs it."""

from coldhash.serve.app import create_app
from coldhash.serve.schemas import Limits

__all__ = ["Limits", "create_app"]
