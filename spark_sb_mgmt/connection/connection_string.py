"""The connection string of a Service Bus namespace (wire-facts.md, section 3.2).

The one rule: one clear error for each mistake, and no error, `repr` or `str` that shows a key or a signature.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from spark_sb_mgmt.errors import InvalidArgumentError

# As the portal spells them; read without regard to case, as the SDKs do.
ENDPOINT: Final = "Endpoint"
SHARED_ACCESS_KEY_NAME: Final = "SharedAccessKeyName"
SHARED_ACCESS_KEY: Final = "SharedAccessKey"
SHARED_ACCESS_SIGNATURE: Final = "SharedAccessSignature"
ENTITY_PATH: Final = "EntityPath"
USE_DEVELOPMENT_EMULATOR: Final = "UseDevelopmentEmulator"
_KEYS: Final = (
    ENDPOINT,
    SHARED_ACCESS_KEY_NAME,
    SHARED_ACCESS_KEY,
    SHARED_ACCESS_SIGNATURE,
    ENTITY_PATH,
    USE_DEVELOPMENT_EMULATOR,
)
_SPELLING: Final = {key.lower(): key for key in _KEYS}
# Of Azure's public cloud and of those of its countries.
_CLOUD_HOSTS: Final = (
    ".servicebus.windows.net",
    ".servicebus.chinacloudapi.cn",
    ".servicebus.usgovcloudapi.net",
    ".servicebus.cloudapi.de",
)
_SIGNATURE_PREFIX: Final = "SharedAccessSignature "
# Of a name or of an address; what else a URL would let through no proxy and no HTTP header does.
_HOST: Final = re.compile(r"[A-Za-z0-9._:%-]+")
# What a mistaken part of a string may be shown by: a key's name, never its value.
_LONGEST_NAME_SHOWN: Final = 40


@dataclass(frozen=True, slots=True)
class ConnectionString:
    """What a connection string says. `port` is None where the endpoint has none; which one is then meant depends on the transport."""

    host: str
    port: int | None = None
    shared_access_key_name: str | None = None
    shared_access_key: str | None = field(default=None, repr=False)
    shared_access_signature: str | None = field(default=None, repr=False)
    entity_path: str | None = None
    use_development_emulator: bool = False


def parse_connection_string(text: str) -> ConnectionString:
    """Read a connection string; InvalidArgumentError says what is wrong with it, without showing any of its values that may be secret."""
    if not isinstance(text, str):
        raise _wrong(f"is a {type(text).__name__}: it must be a text")
    values = _split(text)
    host, port = _endpoint(values.get(ENDPOINT))
    name, key = values.get(SHARED_ACCESS_KEY_NAME), values.get(SHARED_ACCESS_KEY)
    signature = values.get(SHARED_ACCESS_SIGNATURE)
    if signature is not None and (name is not None or key is not None):
        raise _wrong(f"has both {SHARED_ACCESS_SIGNATURE} and {SHARED_ACCESS_KEY_NAME}/{SHARED_ACCESS_KEY}: give one of the two")
    if signature is None and (name is None or key is None):
        missing = " and ".join(part for part, value in ((SHARED_ACCESS_KEY_NAME, name), (SHARED_ACCESS_KEY, key)) if value is None)
        raise _wrong(f"lacks {missing}: give {SHARED_ACCESS_KEY_NAME} and {SHARED_ACCESS_KEY}, or {SHARED_ACCESS_SIGNATURE}")
    if signature is not None and not signature.startswith(_SIGNATURE_PREFIX):
        raise _wrong(f"has a {SHARED_ACCESS_SIGNATURE} that does not start with `{_SIGNATURE_PREFIX}` (the word and a space)")
    is_emulator = _flag(values.get(USE_DEVELOPMENT_EMULATOR))
    if is_emulator and host.lower().endswith(_CLOUD_HOSTS):
        # A token sent in the clear is anybody's.
        raise _wrong(
            f"has {USE_DEVELOPMENT_EMULATOR}=true, which means plain TCP, and its {ENDPOINT} is {host} in the cloud, where that is not "
            f"safe: leave {USE_DEVELOPMENT_EMULATOR} out"
        )
    return ConnectionString(host, port, name, key, signature, values.get(ENTITY_PATH), is_emulator)


def _wrong(problem: str) -> InvalidArgumentError:
    return InvalidArgumentError("connectionString", problem)


def _split(text: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for position, part in enumerate(text.split(";"), 1):
        if not part.strip():
            continue
        name, equals, value = part.partition("=")
        name, value = name.strip(), value.strip()
        if not equals:
            # The part may be a key that was pasted alone, so it is not shown.
            raise _wrong(f"has no `=` in its part {position}: a part is Name=value, and parts are divided by `;`")
        key = _SPELLING.get(name.lower())
        if key is None:
            shown = f"`{name}`" if _is_name(name, value) else f"the name of its part {position}"
            raise _wrong(f"has a part that is not known, {shown}: there are {', '.join(_KEYS)}")
        if key in values:
            raise _wrong(f"has {key} twice")
        if not value:
            raise _wrong(f"has an empty {key}")
        values[key] = value
    if not values:
        raise _wrong(f"is empty: it must have {ENDPOINT}=sb://<namespace>.servicebus.windows.net/ and a key or a signature")
    return values


def _is_name(name: str, value: str) -> bool:
    """Whether the left of a `=` may be shown. A key pasted alone is base64: it has digits, or nothing but its own padding on the right."""
    return name.isalpha() and len(name) <= _LONGEST_NAME_SHOWN and value.strip("=") != ""


def _endpoint(endpoint: str | None) -> tuple[str, int | None]:
    if endpoint is None:
        raise _wrong(f"lacks {ENDPOINT}: it is sb://<namespace>.servicebus.windows.net/")
    problem = f"has an {ENDPOINT} that is not sb://<host> or sb://<host>:<port>"
    try:
        parts = urlsplit(endpoint)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise _wrong(problem) from None
    if parts.scheme.lower() != "sb" or parts.path not in ("", "/") or parts.query or parts.fragment or "@" in parts.netloc:
        raise _wrong(problem)
    if not host or not _HOST.fullmatch(host):
        raise _wrong(problem)
    if port == 0:
        raise _wrong(f"has port 0 in its {ENDPOINT}")
    return host, port


def _flag(value: str | None) -> bool:
    if value is None:
        return False
    if value.lower() not in ("true", "false"):
        raise _wrong(f"has a {USE_DEVELOPMENT_EMULATOR} that is neither true nor false")
    return value.lower() == "true"
