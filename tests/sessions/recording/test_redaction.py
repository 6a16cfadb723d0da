from __future__ import annotations

import json

import pytest

from sessions.core.records import Plain
from sessions.recording.redaction import MARK, Redactor, same_but_for_secrets


@pytest.mark.parametrize(
    "secret",
    [
        "sk-proj-abcdefghijklmnop1234",
        "ek_abcdefghijklmnopqrstuvwx",
        "ghp_abcdefghijklmnopqrstuvwxyz012345",
        "hf_abcdefghijklmnopqrstuvwx",
        "AKIAABCDEFGHIJKLMNOP",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdefghijklmno",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\n-----END RSA PRIVATE KEY-----",
    ],
)
def test_what_looks_like_a_key_is_taken_out_wherever_it_stands(secret: str) -> None:
    line = json.dumps({"text": f"my key is {secret}, keep it", "n": 1}, ensure_ascii=False)
    written = Redactor().line(line)
    assert json.loads(written) == {"text": f"my key is {MARK}, keep it", "n": 1}
    assert Redactor().line(written) == written


def test_a_bearer_token_is_taken_out_and_the_word_stays() -> None:
    assert Redactor().line('"Authorization: Bearer abcDEF123456.xyz="') == f'"Authorization: Bearer {MARK}"'


@pytest.mark.parametrize("secret", ['pass"word\\', "Grüße-ß", "line\nline", "plain-secret"])
def test_a_known_secret_is_taken_out_however_json_spells_it(secret: str) -> None:
    redactor = Redactor([secret])
    for ascii_only in (True, False):
        line = json.dumps({"text": f"a {secret} b"}, ensure_ascii=ascii_only)
        assert json.loads(redactor.line(line)) == {"text": f"a {MARK} b"}
    assert redactor.plain({"config": {"instructions": secret}}) == {"config": {"instructions": MARK}}


def test_ordinary_talk_stays_as_it_is() -> None:
    line = json.dumps({"text": "Ask the task-force whether the desk-top costs 12 euros; Bearer bonds are sky-high."})
    assert Redactor(["abc"]).line(line) == line


def test_records_are_the_same_where_only_the_text_around_a_mark_differs() -> None:
    one: Plain = {"type": "OutputText", "text": f"the key {MARK}"}
    assert same_but_for_secrets(one, {"type": "OutputText", "text": f"the key {MARK}rest"})
    assert not same_but_for_secrets(one, {"type": "OutputText", "text": f"another key {MARK}"})
    assert not same_but_for_secrets(one, {"type": "OutputText", "text": "the key sk"})
    assert not same_but_for_secrets({"a": 1}, {"a": True})
    assert not same_but_for_secrets([1, 2], [1])
