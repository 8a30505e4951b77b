"""What a stored message costs: the bound of the issue, not of a good day."""

from __future__ import annotations

import tracemalloc
from uuid import uuid4

from spark_sb_mgmt.emulator.entities import Namespace, QueueSettings, encode_peeked
from tests.emulator.entities.broker import START, message

COUNT = 2000


def test_a_stored_message_of_one_kilobyte_costs_less_than_three() -> None:
    # Without a journal: the records that other tests keep are no part of the cost.
    namespace = Namespace({"q": QueueSettings(default_message_time_to_live=3_600_000)}, {}, clock=lambda: START, new_lock_token=uuid4)
    queue = namespace.resolve_receiver("q")
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(COUNT):
            queue.send([message(f"{number:01024}", message_id=str(number), properties={"tenant": "t"})])
        # With all that is kept for answering: heads are encoded at the first peek.
        for page in range(0, COUNT, 250):
            encode_peeked(queue.peek(page, 250))
        namespace.take_events()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(queue.messages) == COUNT
    assert (after - before) / COUNT < 3000
