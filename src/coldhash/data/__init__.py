"""Files and frames -> ratings and tables; what columns mean, and their usual names."""

from typing import Protocol

_COUNTS = "count counts quantity qty plays play_count purchases clicks views"
_USUAL = {  # what a column may mean, and the usual names of such a column, the best one first
    "user_id": "user_id user userID userId customer_id client_id household_id visitor_id member_id "
    "id reviewerID",
    "item_id": "item_id item itemID itemId movieId product_id article_id movie_id track_id book_id "
    "joke_id id sku asin isbn ISBN",
    "rating": f"rating weight {_COUNTS} score stars",
    "timestamp": "timestamp datetime event_time event_timestamp transaction_timestamp created_at "
    "purchased_at unixReviewTime ts date time",
    "event": "event event_type type action behavior",
}
ROLES = {role: tuple(names.split()) for role, names in _USUAL.items()}
COUNT_NAMES = tuple(_COUNTS.split())
TITLE = "title"  # the role of the item column that answers show


class ArrowTable(Protocol):
    """A table that Arrow can read: of pandas, polars, pyarrow and others."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the table as a stream of Arrow's C data interface."""


class LazyTable(Protocol):
    """A table that is computed when it is needed, such as a LazyFrame of polars."""

    def collect(self) -> ArrowTable:
        """Compute the table."""
