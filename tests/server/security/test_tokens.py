"""Tokens that another party signs: what passes, and every way in which one must not."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from typing import Any

import httpx
import pytest

pytest.importorskip("jwt")
pytest.importorskip("cryptography")

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from server.security.tokens import (
    ASK_AGAIN_AFTER,
    KEEP_MOST,
    LONGEST,
    InvalidToken,
    TokenRules,
    Tokens,
    looks_like_token,
    usable,
)

ISSUER = "https://id.example"
AUDIENCE = "talkover"
RULES = TokenRules(jwks="https://id.example/jwks", issuer=ISSUER, audience=AUDIENCE)

RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER_RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()
KINDS: dict[str, tuple[str, Any]] = {"r1": ("RS256", RSA), "e1": ("ES256", EC), "d1": ("EdDSA", ED)}


def public(name: str, algorithm: str, key: Any, **more: Any) -> dict[str, Any]:
    """One key of a JWKS."""
    made = jwt.get_algorithm_by_name(algorithm).to_jwk(key.public_key(), as_dict=True)
    return {**made, "kid": name, "alg": algorithm, "use": "sig", **more}


def jwks(*keys: dict[str, Any]) -> bytes:
    return json.dumps({"keys": list(keys)}).encode()


ALL = jwks(*(public(name, *kind) for name, kind in KINDS.items()))


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Issuer:
    """What the issuer publishes; counts how often it is asked."""

    def __init__(self, document: bytes = ALL) -> None:
        self.document = document
        self.asked = 0
        self.away = False

    async def __call__(self) -> bytes:
        self.asked += 1
        if self.away:
            raise httpx.ConnectError("no route")
        return self.document


def claims(**other: Any) -> dict[str, Any]:
    now = int(time.time())
    told = {"iss": ISSUER, "aud": AUDIENCE, "sub": "user", "tenant": "acme", "iat": now, "exp": now + 300, **other}
    return {name: value for name, value in told.items() if value is not None}


def signed(name: str = "r1", key: Any = None, algorithm: str | None = None, **other: Any) -> str:
    kind, known = KINDS.get(name, ("RS256", RSA))
    return jwt.encode(claims(**other), key or known, algorithm or kind, headers={"kid": name})


def part(told: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(told).encode()).decode().rstrip("=")


async def known(issuer: Issuer | None = None, clock: Clock | None = None, rules: TokenRules = RULES) -> Tokens:
    tokens = Tokens(rules, issuer or Issuer(), clock or Clock())
    await tokens.prepare(signed())
    return tokens


@pytest.mark.parametrize("name", list(KINDS))
async def test_a_token_of_the_issuer_speaks_for_its_tenant(name: str) -> None:
    token = signed(name, scope="talkover:recordings other")
    assert looks_like_token(token)
    found = (await known()).verify(token)
    assert found.tenant == "acme"
    assert found.scopes == {"talkover:recordings", "other"}


async def test_scopes_may_be_a_list_and_the_tenant_may_lie_deeper() -> None:
    deep = TokenRules(jwks="", issuer=ISSUER, audience=AUDIENCE, claim="org.id")
    found = (await known(rules=deep)).verify(signed(scp=["a", 1], org={"id": "bolt"}))
    assert (found.tenant, found.scopes) == ("bolt", {"a"})


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"exp": int(time.time()) - 3600}, "expired"),
        ({"exp": None}, "lacks"),
        ({"iss": None}, "lacks"),
        ({"aud": None}, "lacks"),
        ({"iss": "https://evil.example"}, "another issuer"),
        ({"aud": "somebody"}, "somebody else"),
        ({"nbf": int(time.time()) + 3600}, "not good yet"),
        ({"tenant": None}, "'tenant' does not name"),
        ({"tenant": ""}, "'tenant' does not name"),
        ({"tenant": 5}, "'tenant' does not name"),
        ({"tenant": "../acme"}, "'tenant' does not name"),
        ({"tenant": "a:b"}, "'tenant' does not name"),
    ],
)
async def test_a_claim_that_is_wrong_is_named(other: dict[str, Any], said: str) -> None:
    token = signed(**other)
    with pytest.raises(InvalidToken, match=said) as refused:
        (await known()).verify(token)
    assert token not in str(refused.value)


async def test_clocks_may_differ_by_half_a_minute() -> None:
    now = int(time.time())
    tokens = await known()
    tokens.verify(signed(exp=now - 10, nbf=now + 10))
    with pytest.raises(InvalidToken, match="expired"):
        tokens.verify(signed(exp=now - 60))


async def test_no_signature_is_no_signature() -> None:
    tokens = await known()
    for algorithm in ("none", "None", "NONE", ""):
        for name in ("r1", "e1", None):
            head = {"alg": algorithm, "typ": "JWT"} | ({"kid": name} if name else {})
            for signature in ("", "AAAA"):
                with pytest.raises(InvalidToken):
                    tokens.verify(f"{part(head)}.{part(claims())}.{signature}")


async def test_a_public_key_is_no_shared_secret() -> None:
    """https://www.rfc-editor.org/rfc/rfc8725#section-2.1"""
    tokens = await known()
    forms = [
        RSA.public_key().public_bytes(encoding, form)
        for encoding, form in (
            (serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo),
            (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo),
            (serialization.Encoding.PEM, serialization.PublicFormat.PKCS1),
        )
    ]
    for secret in (*forms, b"", json.dumps(public("r1", "RS256", RSA)).encode()):
        for algorithm, digest in (("HS256", hashlib.sha256), ("HS512", hashlib.sha512)):
            text = f"{part({'alg': algorithm, 'kid': 'r1'})}.{part(claims())}"
            signature = base64.urlsafe_b64encode(hmac.new(secret, text.encode(), digest).digest()).decode().rstrip("=")
            with pytest.raises(InvalidToken):
                tokens.verify(f"{text}.{signature}")


async def test_a_key_is_good_for_its_own_algorithm_alone() -> None:
    every = TokenRules(jwks="", issuer=ISSUER, audience=AUDIENCE, algorithms=("RS256", "RS512", "PS256", "ES256"))
    tokens = await known(rules=every)
    for algorithm in ("RS512", "PS256"):
        with pytest.raises(InvalidToken, match="signed in a way"):
            tokens.verify(signed("r1", RSA, algorithm))


async def test_a_signature_by_another_key_or_over_other_words_is_wrong() -> None:
    tokens = await known()
    with pytest.raises(InvalidToken, match="signature"):
        tokens.verify(signed("r1", OTHER_RSA))
    head, _, signature = signed().split(".")
    with pytest.raises(InvalidToken, match="signature"):
        tokens.verify(f"{head}.{part(claims(tenant='bolt'))}.{signature}")


async def test_a_key_that_the_token_brings_along_is_not_used() -> None:
    mine = public("mine", "RS256", OTHER_RSA)
    tokens = await known()
    for headers in ({"jwk": mine, "kid": "r1"}, {"jwk": mine}, {"jku": "https://evil.example", "kid": "r1"}):
        with pytest.raises(InvalidToken):
            tokens.verify(jwt.encode(claims(), OTHER_RSA, "RS256", headers=headers))


@pytest.mark.parametrize("token", ["eyJ.a.b", "eyJhbGciOiJSUzI1NiJ9.x", "eyJ" + "A" * LONGEST + ".a.b", "a.b.c", ""])
async def test_what_is_no_token_is_refused(token: str) -> None:
    tokens = await known()
    await tokens.prepare(token)
    with pytest.raises(InvalidToken):
        tokens.verify(token)


# --- keys ------------------------------------------------------------------------------------------------------------


async def test_a_new_key_is_asked_for_when_a_token_names_it() -> None:
    issuer, clock = Issuer(jwks(public("r1", "RS256", RSA))), Clock()
    tokens = await known(issuer, clock)
    assert issuer.asked == 1
    issuer.document = jwks(public("r2", "RS256", OTHER_RSA))
    fresh = signed("r2", OTHER_RSA)
    clock.now += ASK_AGAIN_AFTER
    await tokens.prepare(fresh)
    assert tokens.verify(fresh).tenant == "acme"
    with pytest.raises(InvalidToken, match="does not publish"):
        tokens.verify(signed())


async def test_keys_that_are_made_up_do_not_load_the_issuer() -> None:
    issuer, clock = Issuer(), Clock()
    tokens = await known(issuer, clock)
    for number in range(50):
        await tokens.prepare(signed(f"made-up-{number}", RSA))
    assert issuer.asked == 1
    clock.now += ASK_AGAIN_AFTER
    await tokens.prepare(signed("made-up", RSA))
    assert issuer.asked == 2


async def test_an_issuer_that_is_away_is_bridged_but_not_for_ever() -> None:
    issuer, clock = Issuer(), Clock()
    tokens = await known(issuer, clock)
    issuer.away = True
    clock.now += ASK_AGAIN_AFTER
    await tokens.prepare(signed("unknown", RSA))
    assert tokens.verify(signed()).tenant == "acme"
    clock.now += KEEP_MOST
    with pytest.raises(InvalidToken):
        tokens.verify(signed())


async def test_whoever_comes_while_the_keys_are_asked_for_waits_for_the_same_answer() -> None:
    released = asyncio.Event()

    class Slow(Issuer):
        async def __call__(self) -> bytes:
            await released.wait()
            return await super().__call__()

    issuer = Slow()
    tokens = Tokens(RULES, issuer, Clock())
    waiting = [asyncio.create_task(tokens.prepare(signed())) for _ in range(5)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    released.set()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert issuer.asked == 1
    assert tokens.verify(signed()).tenant == "acme"


def test_only_keys_for_signatures_with_what_is_allowed_are_kept() -> None:
    shared = {"kty": "oct", "k": "c2VjcmV0", "kid": "s", "alg": "HS256"}
    found = usable(
        jwks(
            public("r1", "RS256", RSA),
            public("enc", "RS256", RSA, use="enc"),
            public("e1", "ES256", EC),
            shared,
            {"kty": "RSA", "kid": "broken"},
            {"kty": "strange"},
        ),
        ("RS256", "HS256"),
    )
    assert list(found) == ["r1"]
    for document in (b"", b"[]", b"{}", b'{"keys": {}}', b"\xff"):
        with pytest.raises(ValueError):  # noqa: PT011 - of json, of the encoding and of ours
            usable(document, ("RS256",))
