"""Encoders: what is known of people -> user vectors. Model files name them by class."""

from __future__ import annotations

from coldhash.recommender.encoders.base import Encoded, Encoder
from coldhash.recommender.encoders.buckets import BucketEncoder
from coldhash.recommender.encoders.consensus import ConsensusEncoder
from coldhash.recommender.encoders.linear import CellEncoder, NoEncoder, StackEncoder
from coldhash.recommender.encoders.neighbours import NeighbourEncoder
from coldhash.recommender.encoders.network import NetworkEncoder

__all__ = ["ENCODERS", "Encoded", "Encoder"]

ENCODERS: dict[str, type[Encoder]] = {
    form.__name__: form
    for form in (
        BucketEncoder,
        CellEncoder,
        ConsensusEncoder,
        NeighbourEncoder,
        NetworkEncoder,
        NoEncoder,
        StackEncoder,
    )
}
