"""What is known of people -> user vectors. ENCODERS is the table that model files are read by."""

from __future__ import annotations

from coldhash.recommender.encoders.buckets import BucketEncoder
from coldhash.recommender.encoders.cell import CellEncoder
from coldhash.recommender.encoders.consensus import ConsensusEncoder
from coldhash.recommender.encoders.encoded import Encoder
from coldhash.recommender.encoders.neighbours import NeighbourEncoder
from coldhash.recommender.encoders.network import NetworkEncoder
from coldhash.recommender.encoders.stack import NoEncoder, StackEncoder

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
