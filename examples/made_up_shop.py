"""Tables of a made-up shop in the form of The Complete Journey, which it stands in for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

import coldhash as ch


def write_tables(folder: Path, n_households: int = 600, n_products: int = 400) -> None:
    """Write purchases, products and the demographics of a third of the households as Parquet.

    Who buys what is taken from the embedded sample: a rated item is a purchase.
    """
    data, rng = (
        ch.read("sample", n_users=n_households, n_items=n_products),
        np.random.default_rng(0),
    )
    matrix, items = data.ratings.matrix.tocoo(), data.items.to_pandas()
    year = pd.Timestamp("2017-01-01") + pd.to_timedelta(
        rng.integers(0, 365 * 86_400, matrix.nnz), "s"
    )
    transactions = pd.DataFrame(
        {
            "household_id": matrix.row + 1,
            "product_id": matrix.col + 25_000,
            "quantity": rng.integers(1, 4, matrix.nnz),
            "transaction_timestamp": year,
        }
    )
    products = pd.DataFrame(
        {
            "product_id": np.arange(n_products) + 25_000,
            "department": items["genres"].map(lambda genres: next(iter(genres)).upper()),
            "product_type": items["title"],
        }
    )
    ages = data.users["age"].to_pandas()
    brackets = pd.cut(
        ages,
        [0, 24, 34, 44, 54, 64, 200],
        labels=["19-24", "25-34", "35-44", "45-54", "55-64", "65+"],
    )
    demographics = pd.DataFrame(
        {
            "household_id": np.arange(n_households) + 1,
            "age": brackets.astype(object).where(ages.notna(), None),
            "home_ownership": rng.choice(["Homeowner", "Renter"], n_households),
            "kids_count": rng.choice(["0", "1", "2", "3+"], n_households),
        }
    )
    folder.mkdir(parents=True, exist_ok=True)
    transactions.to_parquet(folder / "transactions.parquet")
    products.to_parquet(folder / "products.parquet")
    demographics[::3].to_parquet(folder / "demographics.parquet")
