"""Settings: from the command line, the environment and their defaults; what cannot be is refused with a remedy."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any

import pytest

from server import keys
from server.settings import GROUPS, Settings, SettingsError, add_options, from_environment, option_of, variable_of

KEY = "sixteen-or-longer"


def parse(*arguments: str) -> dict[str, Any]:
    parser = argparse.ArgumentParser()
    add_options(parser)
    return vars(parser.parse_args(arguments))


def test_defaults_are_valid_and_for_this_machine_alone() -> None:
    settings = from_environment({}, {})
    assert settings == Settings().check()
    assert settings.loopback
    assert not settings.tls
    assert settings.all_keys() == ()


def test_an_option_wins_over_its_variable_and_a_variable_over_the_default() -> None:
    environment = {"TALKOVER_PORT": "1000", "TALKOVER_LEAD_MS": "300"}
    settings = from_environment(parse("--port", "2000"), environment)
    assert (settings.port, settings.lead_ms, settings.frame_ms) == (2000, 300, 20)


def test_every_setting_has_an_option_a_variable_and_a_group() -> None:
    parser = argparse.ArgumentParser()
    add_options(parser)
    shown = parser.format_help()
    for setting in dataclasses.fields(Settings):
        assert option_of(setting) in shown
        assert f"[{variable_of(setting)}]" in shown.replace("\n" + " " * 24, " ")
        assert setting.metadata["group"] in GROUPS


def test_only_the_options_that_are_asked_for_are_added() -> None:
    parser = argparse.ArgumentParser()
    add_options(parser, "cache")
    with pytest.raises(SystemExit):
        parser.parse_args(["--port", "1"])
    assert parser.parse_args(["--cache", "x"]).cache == Path("x")


@pytest.mark.parametrize(
    ("variable", "text"),
    [("TALKOVER_PORT", "http"), ("TALKOVER_MAX_SESSIONS", "many"), ("TALKOVER_TLS_SELF_SIGNED", "perhaps")],
)
def test_a_variable_that_cannot_be_read_is_named(variable: str, text: str) -> None:
    with pytest.raises(SettingsError, match=f"{variable}='{text}'"):
        from_environment({}, {variable: text})


@pytest.mark.parametrize(("text", "value"), [("1", True), ("Yes", True), ("on", True), ("0", False), ("FALSE", False)])
def test_a_switch_is_read_from_its_variable(text: str, value: bool) -> None:
    assert from_environment({}, {"TALKOVER_EPHEMERAL_SINGLE_USE": text}).ephemeral_single_use is value


def test_an_empty_variable_is_none_at_all() -> None:
    assert from_environment({}, {"TALKOVER_PORT": "", "TALKOVER_API_KEYS": ""}) == Settings()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"port": 65536}, "port 65536"),
        ({"port": -1}, "port -1"),
        ({"engine": "magic"}, "magic"),
        ({"engine": "scripted"}, "--script"),
        ({"engine": "scripted", "script": Path("/nonexistent.toml")}, "/nonexistent.toml"),
        ({"engine": "moshi"}, "--random-weights"),
        ({"engine": "moshi", "random_weights": "huge"}, "huge"),
        ({"engine": "moshi", "random_weights": "tiny", "checkpoint": Path()}, "one of both"),
        ({"engine": "moshi", "checkpoint": Path("/nonexistent")}, "/nonexistent"),
        ({"random_weights": "tiny"}, "--engine moshi"),
        ({"llm_url": "http://x"}, "--llm-model"),
        ({"llm_model": "x"}, "--llm-url"),
        ({"max_sessions": 0}, "--max-sessions"),
        ({"lead_ms": 39}, "--lead-ms"),
        ({"frame_ms": 201}, "--frame-ms"),
        ({"limit_requests": 0}, "--limit-requests"),
        ({"limit_tokens": 0}, "--limit-tokens"),
        ({"resume_grace_s": -1}, "--resume-grace-s"),
        ({"resume_grace_s": 3601}, "--resume-grace-s"),
        ({"rtc_addresses": ("eth0",)}, "--rtc-address eth0"),
        ({"rtc_addresses": ("127.0.0.1,voice.example",)}, "--rtc-address voice.example"),
        ({"rtc_public_address": "voice.example"}, "--rtc-public-address"),
        ({"ice_servers": ("http://turn.example",)}, "--ice-server http://turn.example"),
        ({"ice_servers": ("turn:turn.example",)}, "--ice-username"),
        ({"ice_relay_only": True}, "--ice-relay-only"),
        ({"ice_relay_only": True, "ice_servers": ("stun:stun.example",)}, "--ice-relay-only"),
        ({"rtc_bitrate": 5000}, "--rtc-bitrate"),
        ({"allow_origins": ("app.example",)}, "--allow-origin app.example"),
        ({"allow_origins": ("https://app.example/page",)}, "--allow-origin https://app.example/page"),
        ({"tls_cert": Path("c")}, "go together"),
        ({"tls_key": Path("k")}, "go together"),
        ({"tls_cert": Path("c"), "tls_key": Path("k"), "tls_self_signed": True}, "--tls-self-signed"),
        ({"api_keys": (KEY,), "insecure_no_auth": True}, "contradicts"),
    ],
)
def test_what_cannot_be_is_refused_by_name(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        Settings(**wrong).check()


# --- calls ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "addresses"),
    [
        ("127.0.0.1", ("127.0.0.1",)),
        ("localhost", ("127.0.0.1",)),
        ("::1", ("::1",)),
        ("192.0.2.7", ("192.0.2.7",)),
        ("0.0.0.0", None),
        ("::", None),
        ("voice.example", None),
    ],
)
def test_calls_use_the_address_that_is_listened_on(host: str, addresses: tuple[str, ...] | None) -> None:
    assert Settings(host=host).ice_addresses == addresses


def test_calls_use_the_addresses_that_are_chosen() -> None:
    chosen = Settings(host="0.0.0.0", rtc_addresses=("10.0.0.5, 10.0.0.6", "10.0.0.7"))
    assert chosen.ice_addresses == ("10.0.0.5", "10.0.0.6", "10.0.0.7")
    turn = "turn:turn.example:3478?transport=udp"
    relayed = Settings(ice_servers=(f"stun:a,{turn}",), ice_username="u", ice_credential="p", ice_relay_only=True)
    assert relayed.check().ice_urls == ("stun:a", turn)
    assert "'p'" not in repr(relayed)


# --- keys ----------------------------------------------------------------------------------------------------------


def test_keys_come_from_options_the_variable_and_a_file(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# ours\n\n  key-of-the-file-1  \nkey-of-the-file-2\r\n#key-that-was-revoked\n")
    options = parse("--api-key", "first-key-of-ours", "--api-key", "second-key-of-ours", "--api-keys-file", str(file))
    assert from_environment(options, {}).all_keys() == (
        "first-key-of-ours",
        "second-key-of-ours",
        "key-of-the-file-1",
        "key-of-the-file-2",
    )
    environment = {"TALKOVER_API_KEYS": "one-key-of-ours, other-key-of-ours ,"}
    assert from_environment({}, environment).all_keys() == ("one-key-of-ours", "other-key-of-ours")


def test_keys_are_not_shown_when_settings_are() -> None:
    shown = repr(Settings(api_keys=(KEY,), llm_url="http://x", llm_model="y", llm_key="their-key"))
    assert KEY not in shown
    assert "their-key" not in shown


@pytest.mark.parametrize("key", ["has space", "tab\there", "ümlaut-key-of-ours", "x" * 513, "ek_reserved-for-sessions"])
def test_what_cannot_be_a_key_is_refused_without_repeating_it(key: str) -> None:
    with pytest.raises(SettingsError) as refused:
        Settings(api_keys=("a-good-key-of-ours", key)).check()
    assert key not in str(refused.value)
    assert "--api-key: key 1" in str(refused.value)


@pytest.mark.parametrize("content", ["", "# only a comment\n", "\n\n"])
def test_a_file_without_keys_is_refused_because_it_would_lock_nothing(tmp_path: Path, content: str) -> None:
    file = tmp_path / "keys"
    file.write_text(content)
    with pytest.raises(SettingsError, match="holds no key"):
        Settings(api_keys_file=file).check()


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="nowhere cannot be read: No such file"):
        Settings(api_keys_file=tmp_path / "nowhere").check()
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SettingsError, match="not text in UTF-8"):
        Settings(api_keys_file=binary).check()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_on_loopback_no_key_is_needed(host: str) -> None:
    Settings(host=host).check()
    Settings(host=host, api_keys=("short",)).check()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "example.com", ""])
def test_beyond_loopback_keys_are_needed_and_long_ones(host: str) -> None:
    with pytest.raises(SettingsError) as refused:
        Settings(host=host).check()
    for remedy in ("--api-keys-file", "TALKOVER_API_KEYS", "--host 127.0.0.1", "--insecure-no-auth", "secrets"):
        assert remedy in str(refused.value)
    with pytest.raises(SettingsError, match="at least 16"):
        Settings(host=host, api_keys=("short",)).check()
    Settings(host=host, api_keys=(KEY,)).check()
    Settings(host=host, insecure_no_auth=True).check()


def test_a_key_ring_holds_what_it_was_given_and_keeps_none_of_it() -> None:
    ring = keys.KeyRing(["a" * 20, "b" * 20, "a" * 20])
    assert len(ring) == 2
    assert "a" * 20 in ring
    assert "b" * 20 in ring
    assert "a" * 19 not in ring
    assert "" not in ring
    assert "aaaa" not in repr(vars(ring))
