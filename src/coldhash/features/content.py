"""Item content: the plan's item columns side by side, without constants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scipy.sparse import csr_array, hstack

from coldhash.features.columns import distinct_values, sparse_block
from coldhash.features.forms import FittedColumn


@dataclass(frozen=True, eq=False)
class ContentEncoder:
    """The fitted columns of the item table: turns items into content."""

    columns: dict[str, FittedColumn]

    @property
    def width(self) -> int:
        """How many numbers the content of an item has."""
        return sum(column.width for column in self.columns.values())

    def apply(self, values: Mapping[str, Any], n_rows: int) -> csr_array:
        """Encode columns of values, absent ones as missing; an empty row is an unknown item."""
        blocks = [csr_array((n_rows, 0))]
        for name, column in self.columns.items():
            if name in values:
                distinct, codes = distinct_values(values[name])
                block = sparse_block(column, distinct, name)
                blocks.append(block if codes is None else block[codes])
            else:
                blocks.append(csr_array((n_rows, column.width)))
        return csr_array(hstack(blocks, format="csr", dtype="float32"))
