"""The sequence numbers of one answer, for who plans by them and looks at nothing else of its messages.

The one rule: they are what the column `sequence_number` shows, found in a fraction of its time.
"""

from __future__ import annotations

import numpy as np

from spark_sb_mgmt.amqp.arrow_decode import decode_responses
from spark_sb_mgmt.amqp.lockstep import Ints
from spark_sb_mgmt.amqp.native import native_module


def read_sequence_numbers(response: bytes, bounds: Ints) -> Ints | None:
    """Of each message of a response whose entries lie between `bounds`, as `find_entries` gives them; None if one has none."""
    native = native_module()
    found = native.sequence_numbers(response, bounds) if native is not None else None
    if found is not None:
        return np.frombuffer(found, np.int64)
    column = decode_responses([response], ["sequence_number"]).column(0)
    if column.null_count:
        return None
    # Not by its own to_numpy: that imports pandas, which takes a second.
    return np.frombuffer(column.buffers()[1], np.int64, len(column), column.offset * 8)
