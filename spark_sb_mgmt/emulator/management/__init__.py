"""What `<entity>/$management` does: a request's bytes in, the answer's bytes out. No sockets, no clock of its own.

    request = read_request(raw)
    answer = management.answer(entity, request, holder="management", max_bytes=1024 * 1024)

A request that cannot be read at all is a `ServiceBusFault`, for the link to reject; every other one gets an answer.
"""

from spark_sb_mgmt.emulator.management.dispatch import Management, required_right
from spark_sb_mgmt.emulator.management.envelope import ManagementRequest, encode_fault, encode_response, read_request

__all__ = ["Management", "ManagementRequest", "encode_fault", "encode_response", "read_request", "required_right"]
