"""Who may do what: shared access signatures, JSON web tokens where they are allowed, and what a connection has been granted.

The one rule: a signature is computed over the resource as it was received, whatever way a client encodes it (wire-facts.md section 3.3);
what it is good for is decided on the decoded path. Nothing that was signed with or signed is ever in an error.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import unquote, unquote_plus

from spark_sb_mgmt.emulator.config import RIGHTS, AuthorizationRule, Right
from spark_sb_mgmt.emulator.entities.addresses import parse_address
from spark_sb_mgmt.emulator.entities.faults import ServiceBusFault

SAS_PREFIX = "SharedAccessSignature "
_JWT = re.compile(r"[\w-]+\.[\w-]+\.[\w-]*\Z")


def unauthorized(description: str) -> ServiceBusFault:
    return ServiceBusFault(401, "amqp:unauthorized-access", description)


class Grant(NamedTuple):
    """These rights, on this path and all below it ("" is the whole namespace), until this time in milliseconds."""

    path: str
    rights: frozenset[Right]
    expires_at: int | None

    def covers(self, path: str) -> bool:
        return not self.path or path == self.path or path.startswith(f"{self.path}/")


@dataclass(frozen=True)
class Policies:
    """What the namespace is configured with. `accept_jwt`: any JSON web token that has not expired gives every right, unverified."""

    rules: tuple[AuthorizationRule, ...]
    accept_jwt: bool = False

    def verify_plain(self, key_name: str, key: str) -> frozenset[Right] | None:
        """The rights of who shows the key itself, or None."""
        for rule in self.rules:
            if _equal(rule.key_name, key_name) and _equal(rule.primary_key, key):
                return rule.rights
        return None

    def verify_token(self, token: str, audience: str, now: int) -> Grant:
        """What this token grants for the audience it was put for; a fault if that is nothing."""
        if token.startswith(SAS_PREFIX):
            return self._verify_signature(token, audience, now)
        if _JWT.match(token):
            if not self.accept_jwt:
                raise unauthorized("Tokens of Entra ID are not accepted here: start the emulator with --accept-jwt.")
            return Grant(_path(audience), frozenset(RIGHTS), _jwt_expiry(token, now))
        raise unauthorized("InvalidSignature: the token is neither a shared access signature nor a JSON web token.")

    def _verify_signature(self, token: str, audience: str, now: int) -> Grant:
        fields = dict(part.partition("=")[::2] for part in token[len(SAS_PREFIX) :].strip().split("&"))
        missing = [name for name in ("sr", "sig", "se", "skn") if not fields.get(name)]
        if missing:
            raise unauthorized(f"MalformedToken: the shared access signature lacks {', '.join(missing)}.")
        # Encoded once by some clients and twice by others.
        key_name = unquote(unquote_plus(fields["skn"]))
        rule = next((rule for rule in self.rules if rule.key_name == key_name), None)
        if rule is None:
            raise unauthorized(f"InvalidSignature: there is no policy '{key_name:.256}'.")
        signed = hmac.new(rule.primary_key.encode(), f"{fields['sr']}\n{fields['se']}".encode(), hashlib.sha256).digest()
        if not _equal(base64.b64encode(signed).decode(), unquote(fields["sig"])):
            raise unauthorized("InvalidSignature: the token has an invalid signature.")
        try:
            expires_at = int(float(fields["se"]) * 1000)
        except (ValueError, OverflowError):
            raise unauthorized("MalformedToken: `se` of the shared access signature is no number of seconds.") from None
        if expires_at <= now:
            raise unauthorized("ExpiredToken: the token is expired.")
        scope = Grant(_path(unquote_plus(fields["sr"])), rule.rights, expires_at)
        path = _path(audience)
        if not scope.covers(path):
            raise unauthorized(f"The token is for '{scope.path:.260}', not for '{path:.260}'.")
        return Grant(path, rule.rights, expires_at)


class Authorization:
    """What one connection has been granted so far."""

    def __init__(self) -> None:
        self._grants: dict[str, Grant] = {}

    def add(self, grant: Grant) -> None:
        """A newer token for the same path replaces the older one."""
        self._grants[grant.path] = grant

    def check(self, address: str, now: int, *rights: Right) -> None:
        """A fault unless some grant covers the address with one of the rights. Manage implies the others, as the service has it."""
        path = _path(address)
        expired = False
        for grant in self._grants.values():
            if grant.covers(path) and ("Manage" in grant.rights or not grant.rights.isdisjoint(rights)):
                if grant.expires_at is None or grant.expires_at > now:
                    return
                expired = True
        if expired:
            raise unauthorized(f"ExpiredToken: the token for '{path}' is expired.")
        claims = " or ".join(rights)
        raise unauthorized(f"Unauthorized access. '{claims}' claim(s) are required to perform this operation on '{path:.260}'.")

    def next_expiry(self, now: int) -> int | None:
        """When the next grant ends that has not ended yet."""
        return min(
            (grant.expires_at for grant in self._grants.values() if grant.expires_at is not None and grant.expires_at > now), default=None
        )


def plain_grant(rights: Iterable[Right]) -> Grant:
    """Whoever showed the key needs no token."""
    return Grant("", frozenset(rights), None)


def _path(uri: str) -> str:
    """The entity of an audience or address, in one form; a token for an entity is good for its management node too."""
    return parse_address(uri).key


def _jwt_expiry(token: str, now: int) -> int | None:
    payload = token.split(".")[1]
    try:
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        expires_at = int(claims["exp"]) * 1000 if isinstance(claims, dict) and "exp" in claims else None
    except (ValueError, TypeError, OverflowError, RecursionError):
        raise unauthorized("MalformedToken: the payload of the JSON web token cannot be read.") from None
    if expires_at is not None and expires_at <= now:
        raise unauthorized("ExpiredToken: the token is expired.")
    return expires_at


def _equal(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())
