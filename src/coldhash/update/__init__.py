"""Update a fitted model: items and users that come and go. Every function returns a new model."""

from coldhash.update.edit import Change, add_items, refresh, remove_items, update_users

__all__ = ["Change", "add_items", "refresh", "remove_items", "update_users"]
