"""Signatures of vendors against their own published examples, addresses, tokens, numbers."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json

import pytest

from server.auth import Access, Denied
from server.client_secrets import ClientSecrets
from server.keys import KeyRing
from server.telephony_access import NumberLimits, PhoneAccess, plivo_signature, redacted, twilio_signature

KEY = "key-for-tests-0123456789"
URL = "https://voice.example/telephony/x/connect"


def access(secret: str, vendor: str, now: float = 1000.0, keys: tuple[str, ...] = (KEY,)) -> PhoneAccess:
    return PhoneAccess(Access(KeyRing(keys), ClientSecrets()), {vendor: secret}, clock=lambda: now)


def test_twilios_signature_is_the_one_that_others_compute() -> None:
    # Published with a Twilio signature module for Elixir: this URL, these parameters, this token.
    params = [
        ("Digits", "1234"),
        ("To", "+18005551212"),
        ("From", "+12349013030"),
        ("Caller", "+12349013030"),
        ("CallSid", "CA1234567890ABCDE"),
    ]
    url = "https://mycompany.com/myapp.php?foo=1&bar=2"
    signature = "0/KCTR6DLpKmkAf8muzZqo1nDgQ="
    assert twilio_signature("12345", url, params) == signature
    guard = access("12345", "twilio")
    assert guard.signed("twilio", [url], {"x-twilio-signature": signature}, params)
    for wrong in ("", signature[:-2] + "A=", "\udcff"):
        with pytest.raises(Denied, match="signature"):
            guard.signed("twilio", [url], {"x-twilio-signature": wrong}, params)
    with pytest.raises(Denied):
        guard.signed("twilio", [url], {"x-twilio-signature": signature}, params[1:])
    assert guard.signed("vonage", [url], {}) is False


def test_plivos_signature_needs_its_nonce() -> None:
    guard, given = access("token", "plivo"), plivo_signature("token", URL, "n1")
    headers = {"x-plivo-signature-v3": f"other,{given}", "x-plivo-signature-v3-nonce": "n1"}
    assert guard.signed("plivo", [URL], headers)
    with pytest.raises(Denied):
        guard.signed("plivo", [URL], {**headers, "x-plivo-signature-v3-nonce": "n2"})


def jwt(head: object, claims: object, secret: str) -> str:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    signed = f"{part(head)}.{part(claims)}"
    signature = hmac.new(secret.encode(), signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


@pytest.mark.parametrize(
    ("head", "claims", "secret", "good"),
    [
        ({"alg": "HS256"}, {"iat": 990}, "s", True),
        ({"alg": "HS256"}, {"exp": 1001}, "s", True),
        ({"alg": "HS256"}, {"iat": 10}, "s", False),
        ({"alg": "HS256"}, {"exp": 999}, "s", False),
        ({"alg": "HS256"}, {}, "s", False),
        ({"alg": "HS256"}, {"iat": 990}, "t", False),
        ({"alg": "none"}, {"iat": 990}, "s", False),
        ([], {"iat": 990}, "s", False),
    ],
)
def test_vonages_token_is_signed_with_our_secret_and_of_now(
    head: object, claims: object, secret: str, good: bool
) -> None:
    guard, headers = access("s", "vonage"), {"authorization": f"Bearer {jwt(head, claims, secret)}"}
    if good:
        assert guard.signed("vonage", [URL], headers)
    else:
        with pytest.raises(Denied):
            guard.signed("vonage", [URL], headers)


def test_telnyx_signs_time_and_body_with_its_key() -> None:
    ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")
    private = ed25519.Ed25519PrivateKey.generate()
    guard = access(base64.b64encode(private.public_key().public_bytes_raw()).decode(), "telnyx")
    headers = {
        "telnyx-timestamp": "990",
        "telnyx-signature-ed25519": base64.b64encode(private.sign(b"990|body")).decode(),
    }
    assert guard.signed("telnyx", [URL], headers, body=b"body")
    for wrong in ({**headers, "telnyx-timestamp": "1"}, {**headers, "telnyx-signature-ed25519": "AA=="}, {}):
        with pytest.raises(Denied):
            guard.signed("telnyx", [URL], wrong, body=b"body")
    with pytest.raises(Denied):
        guard.signed("telnyx", [URL], headers, body=b"another")


def test_genesys_signs_what_identifies_its_session() -> None:
    shared = base64.b64encode(b"client-secret").decode()
    guard = access(f"the-key:{shared}", "genesys")
    names = ("@request-target", "@authority", "audiohook-organization-id", "audiohook-session-id", "x-api-key")
    headers = {"audiohook-organization-id": "org", "audiohook-session-id": "ses", "x-api-key": "the-key"}
    inner = " ".join(f'"{name}"' for name in names)
    params = f'({inner});keyid="the-key";nonce="n";alg="hmac-sha256";created=990;expires=1010'
    values = {"@request-target": "/telephony/genesys", "@authority": "voice.example", **headers}
    base = "\n".join([*(f'"{name}": {values[name]}' for name in names), f'"@signature-params": {params}'])
    signature = base64.b64encode(hmac.new(b"client-secret", base.encode(), hashlib.sha256).digest()).decode()
    signed = {**headers, "signature-input": f"sig1={params}", "signature": f"sig1=:{signature}:"}
    url = "wss://voice.example/telephony/genesys"
    assert guard.signed("genesys", [url], signed)
    for wrong in (
        headers,
        {**signed, "audiohook-session-id": "other"},
        {**signed, "x-api-key": "no"},
        {**signed, "signature-input": 'sig1=("x-api-key")'},
    ):
        with pytest.raises(Denied):
            guard.signed("genesys", [url], wrong)
    late = access(f"the-key:{shared}", "genesys", now=1011.0)
    with pytest.raises(Denied):
        late.signed("genesys", [url], signed)


def test_the_others_have_a_name_and_a_password() -> None:
    guard = access("user:password", "asterisk")
    good = "Basic " + base64.b64encode(b"user:password").decode()
    assert guard.signed("asterisk", [URL], {"authorization": good})
    with pytest.raises(Denied):
        guard.signed("asterisk", [URL], {"authorization": "Basic x"})


def test_a_call_needs_a_key_where_there_are_keys_unless_it_is_signed() -> None:
    guard = access("x", "twilio")
    assert guard.call({}, {"token": KEY}, False) == guard.call({"authorization": f"Bearer {KEY}"}, {}, False)
    assert guard.call({}, {}, True) == ""
    for parameters in ({}, {"token": "wrong"}):
        with pytest.raises(Denied):
            guard.call({}, parameters, False)
    with pytest.raises(Denied):
        guard.call({}, {"token": "wrong"}, True)
    assert access("x", "twilio", keys=()).call({"authorization": "Basic eA=="}, {}, False) == ""


def test_numbers_are_limited_at_a_time_and_in_a_minute_and_shown_by_their_end() -> None:
    now = [0.0]
    limits = NumberLimits(2, 3, clock=lambda: now[0])
    limits.enter("+1")
    limits.enter("+1")
    with pytest.raises(Denied, match="end one first"):
        limits.enter("+1")
    limits.enter("+2")
    for _ in range(9):
        limits.enter("")
    limits.leave("+1")
    limits.enter("+1")
    limits.leave("+1")
    with pytest.raises(Denied, match="within a minute"):
        limits.enter("+1")
    now[0] = 61.0
    limits.enter("+1")
    assert [redacted(number) for number in ("+15550100123", "", "123", "sip:alice@example", "100200")] == [
        "+*********23",
        "",
        "***",
        "*****************",
        "****00",
    ]
