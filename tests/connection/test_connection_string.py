"""The connection string: what it may say, and one clear error for each mistake."""

from __future__ import annotations

import pickle

import pytest

from spark_sb_mgmt.connection.connection_string import ConnectionString, parse_connection_string
from spark_sb_mgmt.errors import InvalidArgumentError

SECRET = "c2VjcmV0LWtleS1ub2JvZHktbWF5LXNlZQ=="
KEY = f"SharedAccessKeyName=Root;SharedAccessKey={SECRET}"
NAMESPACE = "Endpoint=sb://ns.servicebus.windows.net/"
SIGNATURE = "SharedAccessSignature sr=sb%3A%2F%2Fns&sig=abc%3D&se=1900000000&skn=Root"


def test_a_key() -> None:
    assert parse_connection_string(f"{NAMESPACE};{KEY}") == ConnectionString(
        "ns.servicebus.windows.net", None, shared_access_key_name="Root", shared_access_key=SECRET
    )


def test_a_signature_with_an_entity() -> None:
    parsed = parse_connection_string(f"{NAMESPACE};SharedAccessSignature={SIGNATURE};EntityPath=orders/priority")
    assert parsed == ConnectionString("ns.servicebus.windows.net", shared_access_signature=SIGNATURE, entity_path="orders/priority")


def test_the_emulator_with_its_port() -> None:
    parsed = parse_connection_string(f"Endpoint=sb://localhost:5999;{KEY};UseDevelopmentEmulator=true;")
    assert (parsed.host, parsed.port, parsed.use_development_emulator) == ("localhost", 5999, True)


def test_an_ipv6_host() -> None:
    parsed = parse_connection_string(f"Endpoint=sb://[::1]:5672/;{KEY}")
    assert (parsed.host, parsed.port) == ("::1", 5672)


def test_names_in_any_case_and_spaces_around() -> None:
    text = f" endpoint = sb://ns.servicebus.windows.net ; SHAREDACCESSKEYNAME=Root; sharedaccesskey={SECRET} ;usedevelopmentemulator=False"
    assert parse_connection_string(text) == parse_connection_string(f"{NAMESPACE};{KEY}")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        (" ; ", "is empty"),
        (KEY, "lacks Endpoint"),
        (f"{NAMESPACE};SharedAccessKeyName=Root", "lacks SharedAccessKey:"),
        (f"{NAMESPACE};SharedAccessKey={SECRET}", "lacks SharedAccessKeyName:"),
        (NAMESPACE, "lacks SharedAccessKeyName and SharedAccessKey"),
        (f"{NAMESPACE};{KEY};SharedAccessSignature={SIGNATURE}", "has both"),
        (f"{NAMESPACE};SharedAccessSignature={SECRET}", "does not start with `SharedAccessSignature `"),
        (f"{NAMESPACE};{KEY};SharedAccessKey={SECRET}", "has SharedAccessKey twice"),
        (f"{NAMESPACE};SharedAccessKeyName=Root;SharedAccessKey=", "has an empty SharedAccessKey"),
        (f"{NAMESPACE};{KEY};TransportType=Amqp", "not known, `TransportType`"),
        (f"{NAMESPACE};{KEY};{SECRET}", "the name of its part 4"),
        (f"{NAMESPACE};{KEY};OnlyLettersButTheEndOfAKey=", "the name of its part 4"),
        (f"{NAMESPACE};{SECRET.rstrip('=')};{KEY}", "no `=` in its part 2"),
        (f"Endpoint=https://ns.servicebus.windows.net/;{KEY}", "is not sb://"),
        (f"Endpoint=ns.servicebus.windows.net;{KEY}", "is not sb://"),
        (f"Endpoint=sb://ns.servicebus.windows.net/orders;{KEY}", "is not sb://"),
        (f"Endpoint=sb://user:pw@ns.servicebus.windows.net/;{KEY}", "is not sb://"),
        (f"Endpoint=sb://ns:port/;{KEY}", "is not sb://"),
        (f"Endpoint=sb://ns:99999/;{KEY}", "is not sb://"),
        (f"Endpoint=sb://n s/;{KEY}", "is not sb://"),
        (f"Endpoint=sb://bücher.example/;{KEY}", "is not sb://"),
        (f"Endpoint=sb://ns:0/;{KEY}", "port 0"),
        (f"{NAMESPACE};{KEY};UseDevelopmentEmulator=yes", "neither true nor false"),
        (f"{NAMESPACE};{KEY};UseDevelopmentEmulator=true", "leave UseDevelopmentEmulator out"),
        (f"Endpoint=sb://ns.ServiceBus.ChinaCloudAPI.cn/;{KEY};UseDevelopmentEmulator=true", "leave UseDevelopmentEmulator out"),
    ],
)
def test_a_mistake_is_named_and_nothing_secret_shown(text: str, says: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        parse_connection_string(text)
    assert says in str(caught.value)
    assert str(caught.value).startswith("connectionString ")
    assert SECRET.rstrip("=") not in str(caught.value)
    assert caught.value.__cause__ is None


def test_its_repr_shows_no_secret_and_it_pickles() -> None:
    parsed = parse_connection_string(f"{NAMESPACE};{KEY}")
    assert SECRET not in repr(parsed)
    assert SECRET not in str(parsed)
    assert pickle.loads(pickle.dumps(parsed)) == parsed
    assert "sig" not in repr(parse_connection_string(f"{NAMESPACE};SharedAccessSignature={SIGNATURE}"))
