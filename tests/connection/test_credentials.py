"""Tokens: signed as the SDK signs them, renewed in time, and never shown."""

from __future__ import annotations

import pickle
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.servicebus._pyamqp.utils import generate_sas_token

from spark_sb_mgmt.connection.connection_string import ConnectionString
from spark_sb_mgmt.connection.credentials import (
    ENTRA_SCOPE,
    EntraCredential,
    SharedAccessKey,
    SharedAccessSignature,
    Token,
    as_credential,
    credential_of,
    entra_credential,
)
from spark_sb_mgmt.errors import AuthenticationError, InvalidArgumentError

SECRET = "c2VjcmV0+a/b=="
AUDIENCE = "sb://ns.servicebus.windows.net/orders/Subscriptions/all of them"
NOW = 1_800_000_000.25


class Identity:
    """What azure-identity gives, without asking anybody."""

    def __init__(self, expires_on: float = NOW + 3600, problem: Exception | None = None) -> None:
        self.expires_on = expires_on
        self.problem = problem
        self.scopes: list[tuple[str, ...]] = []

    def get_token(self, *scopes: str, **_: Any) -> SimpleNamespace:
        self.scopes.append(scopes)
        if self.problem is not None:
            raise self.problem
        return SimpleNamespace(token="eyJ.secret.jwt", expires_on=self.expires_on)


def test_a_key_signs_as_the_sdk_does() -> None:
    token = SharedAccessKey("RootManageSharedAccessKey", SECRET, lifetime_s=600).token(AUDIENCE, NOW)
    assert token.value == generate_sas_token(AUDIENCE, "RootManageSharedAccessKey", SECRET, int(NOW) + 600)
    assert token.type == "servicebus.windows.net:sastoken"
    assert token.expires_at == int(NOW) + 600


def test_a_token_is_renewed_while_a_part_of_its_life_is_left() -> None:
    token = SharedAccessKey("n", SECRET, lifetime_s=1000).token(AUDIENCE, 5000.0)
    assert token.renew_at is not None
    left = (token.expires_at - token.renew_at) / 1000
    assert 0.10 <= left <= 0.20


def test_a_token_from_a_cache_is_renewed_within_what_is_left() -> None:
    token = EntraCredential(Identity(expires_on=NOW + 100)).token(AUDIENCE, NOW)
    assert token.renew_at == pytest.approx(NOW + 85)


def test_a_signature_says_itself_when_it_ends_and_cannot_be_renewed() -> None:
    signature = SharedAccessKey("n", SECRET).token(AUDIENCE, NOW).value
    token = SharedAccessSignature(signature).token(AUDIENCE, NOW)
    assert (token.value, token.expires_at, token.renew_at) == (signature, int(NOW) + 3600, None)


def test_a_signature_that_ended_is_an_authentication_error() -> None:
    signature = SharedAccessKey("n", SECRET).token(AUDIENCE, NOW).value
    with pytest.raises(AuthenticationError, match=r"ended at 2027-01-15T09:00:00\+00:00: give a new one") as caught:
        SharedAccessSignature(signature).token(AUDIENCE, NOW + 3601)
    assert not caught.value.retryable


@pytest.mark.parametrize("missing", ["sr", "sig", "se", "skn"])
def test_a_signature_that_lacks_a_part_is_found_before_any_connection(missing: str) -> None:
    parts = [part for part in ("sr=a", "sig=b", "se=1", "skn=d") if not part.startswith(f"{missing}=")]
    with pytest.raises(InvalidArgumentError, match=f"must have `{missing}` once"):
        credential_of(ConnectionString("ns", shared_access_signature="SharedAccessSignature " + "&".join(parts)))


def test_a_signature_whose_end_is_no_number() -> None:
    with pytest.raises(InvalidArgumentError, match="no number of seconds"):
        credential_of(ConnectionString("ns", shared_access_signature="SharedAccessSignature sr=a&sig=b&se=soon&skn=d"))


def test_the_credential_of_a_connection_string() -> None:
    assert credential_of(ConnectionString("ns", shared_access_key_name="n", shared_access_key="k")) == SharedAccessKey("n", "k")
    signature = "SharedAccessSignature sr=a&sig=b&se=1&skn=d"
    assert credential_of(ConnectionString("ns", shared_access_signature=signature)) == SharedAccessSignature(signature)


def test_entra_asks_for_the_scope_of_service_bus() -> None:
    identity = Identity()
    token = as_credential(identity).token(AUDIENCE, NOW)
    assert identity.scopes == [(ENTRA_SCOPE,)]
    assert (token.type, token.value, token.expires_at) == ("jwt", "eyJ.secret.jwt", NOW + 3600)


def test_what_entra_refuses_is_an_authentication_error_with_its_first_line() -> None:
    identity = Identity(problem=RuntimeError("no managed identity here\nand a long list of attempts"))
    with pytest.raises(AuthenticationError, match="RuntimeError: no managed identity here") as caught:
        as_credential(identity).token(AUDIENCE, NOW)
    assert "long list" not in str(caught.value)


def test_an_identity_may_have_a_token_besides() -> None:
    identity = Identity()
    identity.token = "of its own"  # type: ignore[attr-defined]
    assert as_credential(identity).token(AUDIENCE, NOW).value == "eyJ.secret.jwt"


@pytest.mark.parametrize(
    "found",
    [
        None,
        SimpleNamespace(token=None, expires_on=NOW + 1),
        SimpleNamespace(token=SECRET),
        SimpleNamespace(token=SECRET, expires_on="soon"),
    ],
)
def test_what_is_no_token_is_an_authentication_error(found: Any) -> None:
    with pytest.raises(AuthenticationError, match="which is no token: it needs `token` and `expires_on`") as caught:
        as_credential(SimpleNamespace(get_token=lambda *scopes, **_: found)).token(AUDIENCE, NOW)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("ended", [NOW, NOW - 5, -1e30])
def test_a_token_that_has_ended_is_an_authentication_error(ended: float) -> None:
    with pytest.raises(AuthenticationError, match="gave a token that ended at"):
        as_credential(Identity(expires_on=ended)).token(AUDIENCE, NOW)


def test_an_asynchronous_identity_is_refused() -> None:
    class Asynchronous:
        async def get_token(self, *scopes: str, **_: Any) -> Any:
            raise AssertionError("never asked")

    with pytest.raises(InvalidArgumentError, match="is an asynchronous Asynchronous"):
        as_credential(Asynchronous())


def test_an_object_that_gives_no_tokens_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="credential is a object, which has no get_token"):
        as_credential(object())  # type: ignore[arg-type]


def test_a_client_secret_needs_all_three() -> None:
    with pytest.raises(InvalidArgumentError, match="clientSecret needs tenantId, clientSecret too"):
        entra_credential("clientSecret", client_id="c")


def test_an_unknown_credential_is_named_with_what_there_is() -> None:
    with pytest.raises(InvalidArgumentError, match="is 'workload': there are default, managedIdentity, clientSecret"):
        entra_credential("workload")


@pytest.fixture
def no_azure_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "azure.identity", None)
    azure = sys.modules["azure"]
    if hasattr(azure, "identity"):
        monkeypatch.delattr(azure, "identity")


@pytest.mark.usefixtures("no_azure_identity")
def test_without_azure_identity_the_extra_is_named() -> None:
    with pytest.raises(InvalidArgumentError, match=r"default needs azure-identity: pip install 'sbmgmt\[entra\]'"):
        entra_credential("default")


@pytest.mark.parametrize(
    "shown",
    [
        SharedAccessKey("n", SECRET),
        SharedAccessSignature(f"SharedAccessSignature sr=a&sig={SECRET}&se=1&skn=d"),
        SharedAccessKey("n", SECRET).token(AUDIENCE, NOW),
        Token("jwt", SECRET, 1.0),
        EntraCredential(Identity()),
        ConnectionString("ns", shared_access_key_name="n", shared_access_key=SECRET),
    ],
)
def test_nothing_that_prints_an_object_shows_a_secret(shown: object) -> None:
    assert SECRET not in repr(shown)
    assert "sig=" not in repr(shown)
    # What debuggers and crash reporters list of an object.
    with pytest.raises(TypeError):
        vars(shown)
    assert pickle.loads(pickle.dumps(shown)) == shown or isinstance(shown, EntraCredential)


def test_a_key_of_azure_core_signs_as_it_is_at_the_time() -> None:
    source = AzureNamedKeyCredential("first", SECRET)
    credential = as_credential(source)
    assert credential.token(AUDIENCE, NOW) == SharedAccessKey("first", SECRET).token(AUDIENCE, NOW)
    source.update("second", SECRET)
    assert credential.token(AUDIENCE, NOW) == SharedAccessKey("second", SECRET).token(AUDIENCE, NOW)
    assert SECRET not in repr(credential)


def test_a_signature_of_azure_core_is_asked_for_again_before_it_ends() -> None:
    signed = [SharedAccessKey("n", SECRET, lifetime_s=seconds).token(AUDIENCE, NOW).value for seconds in (600, 1200)]
    source = AzureSasCredential(signed[0])
    credential = as_credential(source)
    token = credential.token(AUDIENCE, NOW)
    assert token.value == signed[0]
    assert token.renew_at is not None
    assert NOW < token.renew_at < token.expires_at
    source.update(signed[1])
    assert credential.token(AUDIENCE, token.renew_at).value == signed[1]
    assert "sig=" not in repr(credential)
