"""The request's server-timeout: what the service cannot start in time it does not do, and says so."""

from __future__ import annotations

import pytest

from spark_sb_mgmt.client import ManagementClient
from spark_sb_mgmt.emulator import Emulator, Fault
from spark_sb_mgmt.errors import OperationTimeoutError, OutcomeUnknownError

CONFIG = {"UserConfig": {"Namespaces": [{"Name": "ns", "Queues": [{"Name": "q", "Properties": {"RequiresSession": True}}]}]}}


def test_a_request_that_waits_longer_than_its_server_timeout_is_answered_408_and_not_done() -> None:
    with Emulator.start(CONFIG) as emulator:
        # Far longer than any test may take: the answer cannot be the delayed one.
        emulator.faults.add(Fault("delay", operation="set-session-state", seconds=3600))
        client = ManagementClient.from_connection_string(emulator.connection_string, server_timeout_ms=50, max_retries=0)
        with client, client.entity("q") as queue:
            # A client cannot know what a 408 has left undone.
            with pytest.raises(OutcomeUnknownError) as told:
                queue.set_session_state("s", b"new")
            answer = told.value.__cause__
            assert isinstance(answer, OperationTimeoutError)
            assert (answer.status, answer.condition) == (408, "com.microsoft:timeout")
            assert queue.get_session_state("s") is None
