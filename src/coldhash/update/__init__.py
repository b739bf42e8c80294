"""A living catalogue: a fitted model with other items or users. Each gives a new model value."""
