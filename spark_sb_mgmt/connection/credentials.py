"""Who we are, as tokens for `$cbs` (wire-facts.md, section 3.3).

The one rule: a credential is asked for a token with the time given to it, and neither shows its secret; having slots, not by `vars` either.

Renewal: a token is replaced when RENEW_AT of its life is over, so that the last part is left for retries. A ready-made signature
cannot be replaced: it is used until it ends, and then says so.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import inspect
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable
from urllib.parse import parse_qs, quote_plus

from spark_sb_mgmt.connection.connection_string import ConnectionString
from spark_sb_mgmt.errors import AuthenticationError, InvalidArgumentError, SbMgmtError
from spark_sb_mgmt.operations import names

# The share of a token's life after which it is replaced. The SDKs do so at 90 % (Python), 75 % (JavaScript) and 83 % (.NET) of an hour.
RENEW_AT: Final = 0.85
SAS_LIFETIME_S: Final = 3600
_SIGNATURE_PREFIX: Final = "SharedAccessSignature "
# The double slash is intended: it is the resource's own name.
ENTRA_SCOPE: Final = "https://servicebus.azure.net//.default"
ENTRA_CREDENTIALS: Final = ("default", "managedIdentity", "clientSecret")


@dataclass(frozen=True, slots=True)
class Token:
    """What put-token sends. Times are seconds since the Unix epoch; `renew_at` is None where there is nothing to renew it with."""

    type: str
    value: str = field(repr=False)
    expires_at: float
    renew_at: float | None = None


@runtime_checkable
class Credential(Protocol):
    """Gives tokens. `audience` is the URI that the token is for, `now` the seconds since the Unix epoch."""

    def token(self, audience: str, now: float) -> Token: ...


@runtime_checkable
class TokenCredential(Protocol):
    """What azure-identity's credentials have, and whatever else can get a token of Entra ID."""

    def get_token(self, *scopes: str, **kwargs: Any) -> Any: ...


def renewal_time(now: float, expires_at: float) -> float:
    """When a token that was got now is to be replaced. One that came from a cache, partly used up, is replaced within what is left."""
    return now + max(0.0, expires_at - now) * RENEW_AT


@dataclass(frozen=True, slots=True)
class SharedAccessKey:
    """A shared access policy and its key: signs a token for each audience."""

    name: str
    key: str = field(repr=False)
    lifetime_s: int = SAS_LIFETIME_S

    def token(self, audience: str, now: float) -> Token:
        expiry = int(now) + self.lifetime_s
        resource = quote_plus(audience, safe="")
        # The key is taken as it is written, not base64-decoded.
        digest = hmac.new(self.key.encode(), f"{resource}\n{expiry}".encode(), hashlib.sha256).digest()
        signature = quote_plus(base64.b64encode(digest), safe="")
        value = f"{_SIGNATURE_PREFIX}sr={resource}&sig={signature}&se={expiry}&skn={quote_plus(self.name, safe='')}"
        return Token(names.SAS_TOKEN_TYPE, value, expiry, renewal_time(now, expiry))


@dataclass(frozen=True, slots=True)
class SharedAccessSignature:
    """A token that somebody else signed. It says itself when it ends."""

    signature: str = field(repr=False)

    def token(self, audience: str, now: float) -> Token:
        expires_at = signature_expiry(self.signature)
        if expires_at <= now:
            raise AuthenticationError(f"the SharedAccessSignature ended at {_shown(expires_at)}: give a new one")
        return Token(names.SAS_TOKEN_TYPE, self.signature, expires_at)


def _shown(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, timezone.utc).isoformat()
    except (OverflowError, ValueError, OSError):
        return f"{seconds:g} s since 1970"


def signature_expiry(signature: str) -> float:
    """The `se` of a signature, in seconds since the Unix epoch."""
    fields = parse_qs(signature.removeprefix(_SIGNATURE_PREFIX))
    for name in ("sr", "sig", "se", "skn"):
        if len(fields.get(name, ())) != 1:
            raise InvalidArgumentError("SharedAccessSignature", f"must have `{name}` once: it is sr, sig, se and skn, divided by `&`")
    try:
        return float(int(fields["se"][0]))
    except ValueError:
        raise InvalidArgumentError("SharedAccessSignature", "has an `se` that is no number of seconds since 1970") from None


@dataclass(frozen=True, slots=True)
class EntraCredential:
    """Entra ID: any object with azure-identity's `get_token`."""

    source: TokenCredential = field(repr=False)

    def token(self, audience: str, now: float) -> Token:
        try:
            found = self.source.get_token(ENTRA_SCOPE)
        except SbMgmtError:
            raise
        except Exception as problem:
            # Whatever the library raises; its first line says why, the rest lists everything it tried. It is not chained: a traceback
            # would print it as it is, and only what is ours is scrubbed.
            reason = (str(problem).splitlines() or [""])[0]
            raise AuthenticationError(f"Entra ID gave no token: {type(problem).__name__}: {reason}") from None
        value, expires_on = getattr(found, "token", None), getattr(found, "expires_on", None)
        if not isinstance(value, str) or isinstance(expires_on, bool) or not isinstance(expires_on, (int, float)):
            raise AuthenticationError(f"the credential gave a {type(found).__name__}, which is no token: it needs `token` and `expires_on`")
        if expires_on <= now:
            # Put all the same, it would be replaced again and again.
            raise AuthenticationError(f"the credential gave a token that ended at {_shown(expires_on)}; if it is new, our clock is wrong")
        return Token(names.JWT_TOKEN_TYPE, value, float(expires_on), renewal_time(now, expires_on))


@runtime_checkable
class NamedKeyCredential(Protocol):
    """What azure-core's AzureNamedKeyCredential has: a policy's name and key, which its owner may replace."""

    @property
    def named_key(self) -> tuple[str, str]: ...


@runtime_checkable
class SasCredential(Protocol):
    """What azure-core's AzureSasCredential has: a signature, which its owner may replace."""

    @property
    def signature(self) -> str: ...


@dataclass(frozen=True, slots=True)
class ReplaceableKey:
    """Signs with the key that there is at the time."""

    source: NamedKeyCredential = field(repr=False)

    def token(self, audience: str, now: float) -> Token:
        return SharedAccessKey(*self.source.named_key).token(audience, now)


@dataclass(frozen=True, slots=True)
class ReplaceableSignature:
    """Shows the signature that there is at the time, and asks for a later one before it ends."""

    source: SasCredential = field(repr=False)

    def token(self, audience: str, now: float) -> Token:
        token = SharedAccessSignature(self.source.signature).token(audience, now)
        return replace(token, renew_at=renewal_time(now, token.expires_at))


AnyCredential: TypeAlias = Credential | TokenCredential | NamedKeyCredential | SasCredential


def as_credential(credential: AnyCredential) -> Credential:
    """A credential of ours as it is, one of azure-identity or azure-core (or alike) wrapped."""
    # First: such an object may have a `token` besides.
    if isinstance(credential, TokenCredential):
        if inspect.iscoroutinefunction(credential.get_token):
            raise InvalidArgumentError(
                "credential", f"is an asynchronous {type(credential).__name__}: give one of azure.identity, not of .aio"
            )
        return EntraCredential(credential)
    if isinstance(credential, Credential):
        return credential
    if isinstance(credential, NamedKeyCredential):
        return ReplaceableKey(credential)
    if isinstance(credential, SasCredential):
        return ReplaceableSignature(credential)
    raise InvalidArgumentError("credential", f"is a {type(credential).__name__}, which has no get_token: give one of azure-identity")


def credential_of(connection_string: ConnectionString) -> Credential:
    """The credential that a connection string holds."""
    if connection_string.shared_access_signature is not None:
        signature_expiry(connection_string.shared_access_signature)
        return SharedAccessSignature(connection_string.shared_access_signature)
    # The parser lets no string pass that has neither.
    return SharedAccessKey(connection_string.shared_access_key_name or "", connection_string.shared_access_key or "")


def entra_credential(
    kind: str,
    *,
    client_id: str | None = None,
    tenant_id: str | None = None,
    client_secret: str | None = None,
) -> EntraCredential:
    """One of azure-identity's credentials by name. The library is an extra: without it this says how to get it."""
    if kind not in ENTRA_CREDENTIALS:
        raise InvalidArgumentError("credential", f"is {kind!r:.60}: there are {', '.join(ENTRA_CREDENTIALS)}")
    given = {"clientId": client_id, "tenantId": tenant_id, "clientSecret": client_secret}
    if kind == "clientSecret":
        missing = [name for name, value in given.items() if not value]
        if missing:
            raise InvalidArgumentError("credential", f"clientSecret needs {', '.join(missing)} too")
    try:
        from azure import identity
    except ImportError:
        raise InvalidArgumentError("credential", f"{kind} needs azure-identity: pip install 'sbmgmt[entra]'") from None
    if kind == "managedIdentity":
        return EntraCredential(identity.ManagedIdentityCredential(client_id=client_id))
    if kind == "clientSecret":
        return EntraCredential(identity.ClientSecretCredential(tenant_id or "", client_id or "", client_secret or ""))
    return EntraCredential(identity.DefaultAzureCredential())
