"""put-token: say who we are to `$cbs` (wire-facts.md, section 3.3).

The one rule: bytes in, values out; what is secret goes into the body of the message and nowhere else.
"""

from __future__ import annotations

from spark_sb_mgmt.amqp.message import AmqpValue, Message, Properties, encode_message
from spark_sb_mgmt.amqp.types import Map, Timestamp
from spark_sb_mgmt.connection.credentials import Token
from spark_sb_mgmt.errors import AuthenticationError, SbMgmtError, error_from_response
from spark_sb_mgmt.operations import names
from spark_sb_mgmt.operations.envelope import ACCEPTED, NO_STATUS, OK, Response


def encode_put_token(token: Token, audience: str, message_id: str, reply_to: str) -> bytes:
    return encode_message(
        Message(
            properties=Properties(message_id=message_id, to=names.CBS_NODE, reply_to=reply_to),
            application_properties=Map(
                [
                    (names.OPERATION, names.PUT_TOKEN),
                    (names.TOKEN_TYPE, token.type),
                    (names.TOKEN_NAME, audience),
                    (names.TOKEN_EXPIRATION, Timestamp(int(token.expires_at * 1000))),
                ]
            ),
            body=AmqpValue(token.value),
        )
    )


def put_token_error(response: Response) -> SbMgmtError | None:
    """The error that an answer of `$cbs` stands for, None if the token was taken. Whatever it is, nothing else was done. Which request
    wanted the token, and of which entity, is for the one who asked to say."""
    if response.status in (OK, ACCEPTED):
        return None
    if response.status == NO_STATUS:
        return AuthenticationError(f"{names.PUT_TOKEN}: the answer of $cbs has no `{names.CBS_STATUS_CODE}`")
    error = error_from_response(response.status, response.condition, response.description, response.tracking_id)
    error.args = (f"{names.PUT_TOKEN}: {error.args[0]}",)
    error.may_have_taken_effect = False
    return error
