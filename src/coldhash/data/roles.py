"""What columns mean, and the names that they usually have."""

from __future__ import annotations

from coldhash.data.feedback import COUNT_NAMES

ROLES = {  # what a column of ratings may mean, and the usual names of such a column
    "user_id": ("user_id", "user", "userID", "userId"),
    "item_id": ("item_id", "item", "itemID", "itemId", "movieId"),
    "rating": ("rating", "weight"),
    "timestamp": ("timestamp", "datetime"),
    "event": ("event",),
}
OTHER_NAMES = {  # the first of these that is there, where none of the usual names is
    "user_id": tuple("customer_id client_id household_id visitor_id member_id reviewerID".split()),
    "item_id": tuple(
        "product_id article_id movie_id track_id book_id joke_id sku asin isbn ISBN".split()
    ),
    "rating": (*COUNT_NAMES, "score", "stars"),
    "timestamp": tuple(
        "event_time event_timestamp transaction_timestamp created_at purchased_at unixReviewTime "
        "ts date time".split()
    ),
    "event": ("event_type", "type", "action", "behavior"),
}
TITLE = "title"  # the role of the item column that answers show
