"""What is known of people -> user vectors. ENCODERS is the table that model files are read by."""

from __future__ import annotations

from coldhash.encoders.buckets import BucketEncoder
from coldhash.encoders.cell import CellEncoder
from coldhash.encoders.consensus import ConsensusEncoder
from coldhash.encoders.encoded import Encoder
from coldhash.encoders.neighbours import NeighbourEncoder
from coldhash.encoders.network import NetworkEncoder
from coldhash.encoders.stack import NoEncoder, StackEncoder

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
