"""What a client gets when it attaches a link: an entity to send to or receive from, a node that answers, or a refusal.

The one rule: the address decides what it is, the direction what is done there, and the connection's tokens whether it may be.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from proton import Described, Terminus
from proton import Link as ProtonLink

from spark_sb_mgmt.emulator.config import RIGHTS
from spark_sb_mgmt.emulator.entities import Queue, ServiceBusFault, parse_address
from spark_sb_mgmt.emulator.entities.faults import not_allowed
from spark_sb_mgmt.emulator.server.coordinator import CoordinatorLink
from spark_sb_mgmt.emulator.server.entity_links import ReceiverLink, SenderLink
from spark_sb_mgmt.emulator.server.link import Link, refuse
from spark_sb_mgmt.emulator.server.request_links import CbsNode, ManagementNode, ReplyLink, RequestLink
from spark_sb_mgmt.emulator.server.session_wait import SessionWait
from spark_sb_mgmt.operations import names

if TYPE_CHECKING:
    from spark_sb_mgmt.emulator.server.connection import AmqpConnection

TRANSFER_DESTINATION: Final = "com.microsoft:transfer-destination-address"


def attach(connection: AmqpConnection, link: ProtonLink) -> Link | None:
    """Open the link or refuse it; what comes back takes what happens on it."""
    try:
        made = _incoming(connection, link) if link.is_receiver else _outgoing(connection, link)
    except ServiceBusFault as fault:
        refuse(link, fault)
        return None
    # Before it is opened: opening may set things going that look for it.
    connection.links[link] = made
    made.open()
    return None if made.is_gone else made


def _incoming(connection: AmqpConnection, link: ProtonLink) -> Link:
    """The client sends."""
    if link.remote_target.type == Terminus.COORDINATOR:
        return CoordinatorLink(connection, link)
    address = _address(link.remote_target)
    parsed = parse_address(address)
    if parsed.key == names.CBS_NODE:
        return RequestLink(connection, link, address, CbsNode(connection))
    if parsed.is_management:
        entity = connection.broker.namespace.resolve(parsed)
        connection.authorization.check(address, connection.broker.now(), *RIGHTS)
        return RequestLink(connection, link, address, ManagementNode(connection, entity, address), *RIGHTS)
    broker = connection.broker
    destination = (link.remote_properties or {}).get(TRANSFER_DESTINATION)
    if destination is not None:
        # Sent by way of this entity to another in one transaction. All is one store here, so there is no need to stop over.
        connection.authorization.check(str(destination), broker.now(), "Send")
        target = broker.namespace.resolve_sender(str(destination))
    else:
        target = broker.namespace.resolve_sender(parsed)
    connection.authorization.check(address, broker.now(), "Send")
    return SenderLink(connection, link, address, target)


def _outgoing(connection: AmqpConnection, link: ProtonLink) -> Link:
    """The client receives."""
    address = _address(link.remote_source)
    parsed = parse_address(address)
    if parsed.key == names.CBS_NODE:
        return ReplyLink(connection, link, address, names.CBS_NODE)
    broker = connection.broker
    if parsed.is_management:
        entity = broker.namespace.resolve(parsed)
        # Which right an operation needs is looked at when it is asked for.
        connection.authorization.check(address, broker.now(), *RIGHTS)
        return ReplyLink(connection, link, address, f"{entity.path.lower()}/{names.MANAGEMENT_NODE}", *RIGHTS)
    queue = broker.namespace.resolve_receiver(parsed)
    connection.authorization.check(address, broker.now(), "Listen")
    filters = _filters(link)
    if names.SESSION_FILTER not in filters:
        if queue.requires_session:
            raise not_allowed(
                f"It is not possible for an entity that requires sessions to create a non-sessionful message receiver: '{queue.path}'."
            )
        queue.check_receive()
        return ReceiverLink(connection, link, address, queue)
    return _session(connection, link, address, queue, filters[names.SESSION_FILTER])


def _session(connection: AmqpConnection, link: ProtonLink, address: str, queue: Queue, asked: Any) -> Link:
    if not queue.requires_session:
        raise not_allowed(f"'{queue.path}' has no sessions: it cannot be received from with a session id.")
    if isinstance(asked, Described):
        # Go describes it (wire-facts.md section 3.4).
        asked = asked.value
    if asked is not None and not isinstance(asked, str):
        raise ServiceBusFault(400, "amqp:invalid-field", f"A session id is a string, or null for the next session, not {asked!r:.80}.")
    wait = SessionWait(connection, link, address, queue, None if asked is None else str(asked))
    return wait.receiver() or wait


def _address(terminus: Terminus) -> str:
    if terminus.dynamic or not terminus.address:
        raise ServiceBusFault(400, "amqp:invalid-field", "The link has no address; name an entity or the node of one.")
    return str(terminus.address)


def _filters(link: ProtonLink) -> Mapping[str, Any]:
    data = link.remote_source.filter
    data.rewind()
    given = data.get_object() if data.next() is not None else None
    return {str(key): value for key, value in given.items()} if isinstance(given, dict) else {}
