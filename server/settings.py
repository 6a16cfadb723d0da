"""Settings of a server: defaults, then environment (`TALKOVER_*`), then the command line."""

from __future__ import annotations

import argparse
import dataclasses
import ipaddress
import os
import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from . import keys
from .security.quotas import Quota

ENGINES = ("embedded", "scripted", "duplex-script", "moshi", "qwen3-omni", "vllm-omni")
WORKERS = ("thread", "process", "ray")
VOICE_PATHS = ("auto", "codes", "pcm")
SCRIPTED = ("scripted", "duplex-script")
TOKEN_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""How tokens may be signed: RFC 7518 and RFC 8037, less what needs a shared secret."""
OF_A_CHECKPOINT = ("moshi", "qwen3-omni")
"""Engines that run the checkpoint in a folder."""

GROUPS: Mapping[str, str] = {
    "server": "where it listens and how much it takes",
    "models": "what hears, thinks and speaks",
    "remote": "models that run elsewhere",
    "access": "who may connect, and over what",
    "webrtc": "calls from browsers",
    "telephony": "calls from carriers and telephone systems",
    "recording": "what is kept of the conversations",
}
"""Groups of options in the help, in this order, and what each is about."""


class SettingsError(ValueError):
    """A setting that cannot be; names it and says what to do."""


def _setting(
    default: typing.Any,
    help_text: str,
    group: str,
    *,
    option: str | None = None,
    secret: bool = False,
    **extra: typing.Any,
) -> typing.Any:
    """`option`: the option where it is not the field's name. `secret`: never shown. `extra` goes to argparse."""
    metadata = {"help": help_text, "group": group, "option": option, "extra": extra}
    return field(default=default, metadata=metadata, repr=not secret)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One field per setting; its option is the name with dashes, its variable `TALKOVER_` and the name in capitals."""

    host: str = _setting("127.0.0.1", "address to listen on; any but loopback needs API keys", "server")
    port: int = _setting(8787, "port to listen on (0: any free one)", "server")
    max_sessions: int | None = _setting(
        None, "sessions at a time (default: as many as keep the first audio prompt)", "server", metavar="N"
    )
    lead_ms: int = _setting(200, "how far audio is sent ahead of playback", "server", metavar="MS")
    frame_ms: int = _setting(20, "length of one piece of audio that is sent", "server", metavar="MS")
    limit_requests: int | None = _setting(
        None, "responses a minute of each tenant (default: any number)", "access", metavar="N"
    )
    limit_tokens: int | None = _setting(
        None, "tokens a minute of each tenant (default: any number)", "access", metavar="N"
    )
    resume_grace_s: int = _setting(
        30,
        "how long a session waits for a client that said that it can come back; 0: not at all",
        "server",
        metavar="S",
    )
    drain_s: int = _setting(
        0, "how long sessions may go on when the server is told to end; no more are taken then", "server", metavar="S"
    )
    directory: str | None = _setting(
        None,
        "Redis that several servers share, such as redis://127.0.0.1:6379: each finds the sessions of the others, and "
        "goes on with those of one that died",
        "server",
        secret=True,
        metavar="URL",
    )
    tenant_sessions: int | None = _setting(
        None,
        "sessions at a time of each tenant, over all servers that share a directory (default: any number)",
        "access",
        metavar="N",
    )
    limit_http: int | None = _setting(
        None, "requests and handshakes a minute of each tenant (default: any number)", "access", metavar="N"
    )
    limit_audio_minute: int | None = _setting(
        None, "seconds of user audio a minute of each tenant (default: any number)", "access", metavar="S"
    )
    limit_audio_day: int | None = _setting(
        None, "seconds of user audio a day (UTC) of each tenant (default: any number)", "access", metavar="S"
    )
    limit_message_kb: int | None = _setting(
        None, "longest message of a client, in 1,000 characters (default: 16,777)", "access", metavar="KB"
    )
    otlp_endpoint: str | None = _setting(
        None,
        "where traces go, such as http://127.0.0.1:4318/v1/traces: one for each turn (default: none)",
        "server",
        metavar="URL",
    )
    log_level: str = _setting("info", "how much to log", "server", choices=("debug", "info", "warning", "error"))
    log_format: str = _setting(
        "text", "how to log: lines to read, or one JSON object a line", "server", choices=("text", "json")
    )
    engine: str = _setting("embedded", "what answers", "models", choices=ENGINES)
    script: Path | None = _setting(None, "script of the scripted engines (TOML)", "models", metavar="FILE")
    checkpoint: Path | None = _setting(
        None, "folder of a model's published checkpoint, for an engine that runs one", "models", metavar="DIR"
    )
    random_weights: str | None = _setting(
        None,
        "in place of a checkpoint: the true architecture with random weights, which says noise",
        "models",
        choices=("tiny",),
    )
    worker: str = _setting(
        "thread",
        "where the embedded or the moshi engine computes: a thread of this process, processes of their own (moshi: one "
        "for each device), or actors of a Ray cluster",
        "models",
        choices=WORKERS,
    )
    ray_address: str | None = _setting(
        None,
        "the cluster of --worker ray, such as auto or ray://HOST:10001 (default: one on this machine)",
        "models",
        metavar="ADDRESS",
    )
    ray_workers: int = _setting(1, "actors of --worker ray", "models", metavar="N")
    llm_url: str | None = _setting(
        None, "OpenAI-compatible endpoint that thinks instead of the embedded model", "models", metavar="URL"
    )
    llm_model: str | None = _setting(None, "model name at that endpoint", "models", metavar="NAME")
    llm_key: str | None = _setting(None, "key for that endpoint", "models", secret=True, metavar="KEY")
    engine_url: str | None = _setting(
        None, "vLLM-Omni server of --engine vllm-omni, such as ws://10.0.0.7:8099", "remote", metavar="URL"
    )
    engine_model: str | None = _setting(None, "model name at that server", "remote", metavar="NAME")
    engine_key: str | None = _setting(None, "key for that server", "remote", secret=True, metavar="KEY")
    engine_session: Path | None = _setting(
        None, "JSON file with what that model wants in its session object besides", "remote", metavar="FILE"
    )
    tts_url: str | None = _setting(
        None,
        "speaks instead of the embedded voice: http(s)://HOST/v1 an OpenAI-compatible endpoint, ws(s)://HOST Kyutai's "
        "TTS server",
        "remote",
        metavar="URL",
    )
    tts_model: str | None = _setting(None, "model name there (OpenAI-compatible)", "remote", metavar="NAME")
    tts_voice: str | None = _setting(None, "voice there where a session names none", "remote", metavar="NAME")
    tts_key: str | None = _setting(None, "key for it", "remote", secret=True, metavar="KEY")
    asr_url: str | None = _setting(
        None,
        "transcribes instead of the embedded model: http(s)://HOST/v1 an OpenAI-compatible endpoint, ws(s)://HOST "
        "Kyutai's STT server",
        "remote",
        metavar="URL",
    )
    asr_model: str | None = _setting(None, "model name there (OpenAI-compatible)", "remote", metavar="NAME")
    asr_languages: tuple[str, ...] = _setting(
        (),
        "a language that it knows, such as en; repeatable, in the variable separated by commas (default: en; Kyutai: "
        "en, fr)",
        "remote",
        option="asr-language",
        metavar="CODE",
    )
    asr_key: str | None = _setting(None, "key for it", "remote", secret=True, metavar="KEY")
    voice_path: str = _setting(
        "auto",
        "how the embedded voice travels: as codec frames, as PCM, or auto: as frames where the codec is installed",
        "models",
        choices=VOICE_PATHS,
    )
    cache: Path | None = _setting(
        None, "where prepared model files lie (default: ~/.cache/talkover)", "models", metavar="DIR"
    )
    api_keys: tuple[str, ...] = _setting(
        (),
        "a key that clients must send; repeatable, in the variable separated by commas. Other users of this machine "
        "can see options, so prefer the variable or the file",
        "access",
        option="api-key",
        secret=True,
        metavar="KEY",
    )
    api_keys_file: Path | None = _setting(
        None, "file with API keys, one a line, # begins a comment", "access", metavar="FILE"
    )
    tenants_file: Path | None = _setting(
        None,
        "file with tenants and the digests of their keys, as `talkover tenant` writes it; read again when it changes",
        "access",
        metavar="FILE",
    )
    jwt_jwks: str | None = _setting(
        None, "URL of the keys (JWKS) that sign the tokens which clients may send as keys", "access", metavar="URL"
    )
    jwt_issuer: str | None = _setting(None, "who must have issued such a token", "access", metavar="ISSUER")
    jwt_audience: str | None = _setting(None, "for whom it must be meant", "access", metavar="AUDIENCE")
    jwt_algorithms: tuple[str, ...] = _setting(
        (),
        "how it may be signed; repeatable, in the variable separated by commas (default: RS256, ES256, EdDSA)",
        "access",
        option="jwt-algorithm",
        metavar="ALG",
    )
    jwt_tenant_claim: str = _setting(
        "tenant", "its claim that names the tenant; dots lead to what lies deeper", "access", metavar="CLAIM"
    )
    ephemeral_single_use: bool = _setting(
        False,
        "a key from POST /v1/realtime/client_secrets opens one session (default: any number while valid)",
        "access",
    )
    insecure_no_auth: bool = _setting(
        False, "serve without API keys beyond loopback: whoever reaches the port can use it", "access"
    )
    tls_cert: Path | None = _setting(None, "certificate chain (PEM), for https and wss", "access", metavar="FILE")
    tls_key: Path | None = _setting(None, "private key of the certificate (PEM)", "access", metavar="FILE")
    tls_self_signed: bool = _setting(False, "make a certificate for localhost, for development, and use it", "access")
    allow_origins: tuple[str, ...] = _setting(
        (),
        "origin of pages elsewhere that may connect, such as https://app.example; where one is given, pages of others "
        "are refused whatever key they have; repeatable, in the variable separated by commas",
        "access",
        option="allow-origin",
        metavar="ORIGIN",
    )
    rtc_addresses: tuple[str, ...] = _setting(
        (),
        "address of this machine that calls may use; repeatable, in the variable separated by commas (default: the one "
        "that is listened on; for 0.0.0.0 all but loopback)",
        "webrtc",
        option="rtc-address",
        metavar="IP",
    )
    rtc_public_address: str | None = _setting(
        None, "address under which those are reached from outside, behind 1:1 NAT", "webrtc", metavar="IP"
    )
    ice_servers: tuple[str, ...] = _setting(
        (),
        "STUN or TURN server, such as turn:turn.example:3478?transport=udp; repeatable, in the variable separated by "
        "commas",
        "webrtc",
        option="ice-server",
        metavar="URL",
    )
    ice_username: str | None = _setting(None, "user name at the TURN server", "webrtc", metavar="NAME")
    ice_credential: str | None = _setting(
        None, "password at the TURN server", "webrtc", secret=True, metavar="PASSWORD"
    )
    ice_relay_only: bool = _setting(False, "reach clients through the TURN server alone", "webrtc")
    rtc_bitrate: int = _setting(32_000, "bit/s of a voice, either way", "webrtc", metavar="N")
    rtc_dtx: bool = _setting(False, "let clients send nothing while nothing is said", "webrtc")
    phone_secrets: tuple[str, ...] = _setting(
        (),
        "VENDOR=SECRET: calls of that vendor must be signed with it (see docs/telephony.md for what it is at each); "
        "repeatable, in the variable separated by commas",
        "telephony",
        option="phone-secret",
        secret=True,
        metavar="VENDOR=SECRET",
    )
    phone_allow: tuple[str, ...] = _setting(
        (),
        "address or network that telephone calls may come from, such as 203.0.113.0/24; repeatable, in the variable "
        "separated by commas (default: any)",
        "telephony",
        option="phone-allow",
        metavar="NETWORK",
    )
    phone_url: str | None = _setting(
        None,
        "where vendors reach this server, such as wss://voice.example (default: as their request says)",
        "telephony",
        metavar="URL",
    )
    phone_session: Path | None = _setting(
        None, "session object (JSON) that telephone calls begin with", "telephony", metavar="FILE"
    )
    phone_greet_ms: int | None = _setting(
        None,
        "the agent speaks first on a call, once nobody has said anything for so long; 0: at once (default: the caller "
        "speaks first)",
        "telephony",
        metavar="MS",
    )
    phone_keys_ms: int = _setting(
        1500, "pressed keys become a turn when no other follows for so long, or at #", "telephony", metavar="MS"
    )
    phone_keys_interrupt: bool = _setting(False, "a pressed key takes the floor from the agent", "telephony")
    phone_per_number: int | None = _setting(
        None, "calls at a time from one number (default: any number)", "telephony", metavar="N"
    )
    phone_per_number_minute: int | None = _setting(
        None, "calls a minute from one number (default: any number)", "telephony", metavar="N"
    )
    phone_show_numbers: bool = _setting(
        False, "write telephone numbers whole into logs and recordings (default: their last two digits)", "telephony"
    )
    phone_tenant: str | None = _setting(
        None,
        "whose calls are that come with their vendor's signature and no key (default: the tenant of --api-key)",
        "telephony",
        metavar="NAME",
    )
    audiosocket_port: int | None = _setting(
        None, "port for Asterisk's AudioSocket, on the same address (default: none)", "telephony", metavar="PORT"
    )
    record: Path | None = _setting(None, "record every session below this folder", "recording", metavar="DIR")
    record_consent: str = _setting(
        "assumed",
        "required: only sessions whose client says that the user agrees (session.x_talkover.recording_consent)",
        "recording",
        choices=("assumed", "required"),
    )
    record_session_mb: int | None = _setting(
        None, "how large one recording may become; then it stops (default: any size)", "recording", metavar="MB"
    )
    record_total_gb: float | None = _setting(
        None, "how much all may take; the oldest are deleted (default: any size)", "recording", metavar="GB"
    )
    record_days: float | None = _setting(
        None, "how long one is kept (default: until it is deleted)", "recording", metavar="DAYS"
    )
    record_tenant_days: tuple[str, ...] = _setting(
        (),
        "the same for one tenant, as NAME=DAYS; repeatable, in the variable separated by commas",
        "recording",
        metavar="NAME=DAYS",
    )

    def check(self) -> Settings:
        """Itself, or SettingsError."""
        if not 0 <= self.port <= 65535:
            raise SettingsError(f"port {self.port} does not exist; choose one from 1 to 65535, or 0 for any free one")
        if self.engine not in ENGINES:
            raise SettingsError(f"there is no engine {self.engine!r}; choose one of {', '.join(ENGINES)}")
        if self.engine in SCRIPTED and self.script is None:
            raise SettingsError(f"--engine {self.engine} needs --script FILE.toml with its replies")
        self._check_checkpoint()
        self._check_remote()
        if self.voice_path not in VOICE_PATHS:
            raise SettingsError(f"--voice-path {self.voice_path}: choose one of {', '.join(VOICE_PATHS)}")
        if self.voice_path == "codes" and (self.engine != "embedded" or self.tts_url is not None):
            raise SettingsError("--voice-path codes is for the voice of --engine embedded alone; drop it")
        if self.script is not None and not self.script.is_file():
            raise SettingsError(f"--script {self.script}: there is no such file")
        if (self.llm_url is None) != (self.llm_model is None):
            raise SettingsError("--llm-url and --llm-model go together; give both or neither")
        if self.llm_url is not None and not _begins(self.llm_url, "http", "https"):
            raise SettingsError(f"--llm-url {self.llm_url} must begin with http:// or https://")
        if self.llm_key is not None and self.llm_url is None:
            raise SettingsError("--llm-key needs --llm-url")
        if self.max_sessions is not None and self.max_sessions < 1:
            raise SettingsError("--max-sessions must be at least 1")
        if not 40 <= self.lead_ms <= 5000:
            raise SettingsError("--lead-ms must lie between 40 and 5000")
        if not 10 <= self.frame_ms <= self.lead_ms:
            raise SettingsError("--frame-ms must lie between 10 and the lead")
        for option, limit in (
            ("--limit-requests", self.limit_requests),
            ("--limit-tokens", self.limit_tokens),
            ("--limit-http", self.limit_http),
            ("--limit-audio-minute", self.limit_audio_minute),
            ("--limit-audio-day", self.limit_audio_day),
            ("--limit-message-kb", self.limit_message_kb),
            ("--tenant-sessions", self.tenant_sessions),
        ):
            if limit is not None and limit < 1:
                raise SettingsError(f"{option} must be at least 1; leave it out for any number")
        if not 0 <= self.resume_grace_s <= 3600:
            raise SettingsError("--resume-grace-s must lie between 0 and 3600")
        if not 0 <= self.drain_s <= 3600:
            raise SettingsError("--drain-s must lie between 0 and 3600")
        if self.otlp_endpoint is not None and not self.otlp_endpoint.startswith(("http://", "https://")):
            raise SettingsError(f"--otlp-endpoint {self.otlp_endpoint}: begin it with http:// or https://")
        self._check_access()
        self._check_webrtc()
        self._check_recording()
        self._check_telephony()
        return self

    def _check_checkpoint(self) -> None:
        given = (self.checkpoint is not None) + (self.random_weights is not None)
        runs = self.engine in OF_A_CHECKPOINT
        if runs and given != 1:
            raise SettingsError(f"--engine {self.engine} needs --checkpoint DIR or --random-weights tiny, one of both")
        if not runs and given:
            fitting = " or ".join(f"--engine {engine}" for engine in OF_A_CHECKPOINT)
            raise SettingsError(f"--checkpoint and --random-weights are for {fitting}; drop them or choose one")
        if self.worker not in WORKERS:
            raise SettingsError(f"there is no worker {self.worker!r}; choose one of {', '.join(WORKERS)}")
        if self.ray_workers < 1:
            raise SettingsError("--ray-workers must be at least 1")
        if self.worker != "ray" and (self.ray_address is not None or self.ray_workers != 1):
            raise SettingsError("--ray-address and --ray-workers are for --worker ray; drop them or choose it")
        if self.engine not in ("moshi", "embedded") and self.worker != "thread":
            raise SettingsError(
                f"--worker {self.worker} is for --engine moshi and embedded; drop it or choose one of them"
            )
        if self.random_weights not in (None, "tiny"):
            raise SettingsError(f"--random-weights {self.random_weights}: there is only tiny")
        if self.checkpoint is not None and not self.checkpoint.is_dir():
            raise SettingsError(f"--checkpoint {self.checkpoint}: there is no such folder")

    def _check_remote(self) -> None:
        needs = (self.engine_url is not None, self.engine_model is not None)
        if self.engine == "vllm-omni" and not all(needs):
            raise SettingsError("--engine vllm-omni needs --engine-url ws://HOST:PORT and --engine-model NAME")
        if self.engine != "vllm-omni" and (any(needs) or self.engine_key or self.engine_session):
            raise SettingsError("--engine-url and its companions are for --engine vllm-omni; drop them or choose it")
        if self.engine_url is not None and not _begins(self.engine_url, "ws", "wss", "http", "https"):
            raise SettingsError(f"--engine-url {self.engine_url} must begin with ws:// or wss://")
        if self.engine_session is not None and not self.engine_session.is_file():
            raise SettingsError(f"--engine-session {self.engine_session}: there is no such file")
        if self.tts_url is not None and self.engine != "embedded":
            raise SettingsError("--tts-url speaks for --engine embedded alone; drop it or choose that engine")
        for name, url, model in (("tts", self.tts_url, self.tts_model), ("asr", self.asr_url, self.asr_model)):
            scheme = url.partition("://")[0] if url is not None else ""
            if url is not None and scheme not in ("http", "https", "ws", "wss"):
                raise SettingsError(f"--{name}-url {url} must begin with http://, https://, ws:// or wss://")
            if scheme in ("http", "https") and model is None:
                raise SettingsError(f"--{name}-url {url} needs --{name}-model NAME: an endpoint serves several")
            if scheme in ("ws", "wss") and model is not None:
                raise SettingsError(f"--{name}-model: Kyutai's server serves one model; drop it")
            if url is None and model is not None:
                raise SettingsError(f"--{name}-model needs --{name}-url")
        if self.tts_url is None and (self.tts_voice is not None or self.tts_key is not None):
            raise SettingsError("--tts-voice and --tts-key need --tts-url")
        if self.asr_url is None and (self.asr_languages or self.asr_key is not None):
            raise SettingsError("--asr-language and --asr-key need --asr-url")
        for code in self.languages:
            if not _LANGUAGE.fullmatch(code):
                raise SettingsError(f"--asr-language {code}: give the code of a language alone, such as en")

    @property
    def languages(self) -> tuple[str, ...]:
        """Languages that the remote recognizer is said to know."""
        return _parts(self.asr_languages)

    def _check_access(self) -> None:
        try:
            known = self.all_keys()
            if not self.loopback:
                keys.check_length_abroad(known, self.host)
        except keys.InvalidKey as error:
            raise SettingsError(str(error)) from None
        known_elsewhere = self.tenants_file is not None or self.jwt_jwks is not None
        if not known and not known_elsewhere and not self.loopback and not self.insecure_no_auth:
            raise SettingsError(
                f"--host {self.host}: others than this machine can connect there, so API keys are needed. Give "
                f"--api-keys-file FILE, TALKOVER_API_KEYS ({keys.MAKE_ONE}) or --tenants-file FILE (`talkover tenant "
                "add`), or leave --host 127.0.0.1; --insecure-no-auth serves everybody who reaches the port"
            )
        if (known or known_elsewhere) and self.insecure_no_auth:
            raise SettingsError("--insecure-no-auth contradicts the API keys that are set; drop one of them")
        self._check_tokens()
        if (self.tls_cert is None) != (self.tls_key is None):
            raise SettingsError("--tls-cert and --tls-key go together; give both or neither")
        if self.tls_self_signed and self.tls_cert is not None:
            raise SettingsError("--tls-self-signed makes a certificate; do not give --tls-cert and --tls-key as well")

    def _check_tokens(self) -> None:
        together = (self.jwt_jwks, self.jwt_issuer, self.jwt_audience)
        if any(one is not None for one in together) and not all(together):
            raise SettingsError(
                "--jwt-jwks, --jwt-issuer and --jwt-audience go together, or tokens of anybody and for anybody pass"
            )
        if self.jwt_jwks is None:
            if self.jwt_algorithms:
                raise SettingsError("--jwt-algorithm needs --jwt-jwks")
            return
        if not self.jwt_jwks.startswith("https://") and not _on_loopback(self.jwt_jwks):
            raise SettingsError(f"--jwt-jwks {self.jwt_jwks}: begin it with https://, or whoever is on the way signs")
        for name in _parts(self.jwt_algorithms):
            if name.startswith("HS") or name.lower() == "none":
                raise SettingsError(f"--jwt-algorithm {name}: only signatures with public keys are taken, as RS256 is")
            if name not in TOKEN_ALGORITHMS:
                raise SettingsError(f"--jwt-algorithm {name}: choose of {', '.join(TOKEN_ALGORITHMS)}")

    @property
    def token_algorithms(self) -> tuple[str, ...]:
        """How tokens may be signed; none: as by default."""
        return _parts(self.jwt_algorithms)

    @property
    def quota(self) -> Quota:
        """What a tenant may use where its own entry says nothing."""
        return Quota(
            sessions=self.tenant_sessions,
            requests=self.limit_requests,
            tokens=self.limit_tokens,
            http=self.limit_http,
            audio_minute=self.limit_audio_minute,
            audio_day=self.limit_audio_day,
            message_kb=self.limit_message_kb,
        )

    def _check_recording(self) -> None:
        if self.record_consent not in ("assumed", "required"):
            raise SettingsError(f"--record-consent {self.record_consent}: choose assumed or required")
        for option, limit in (
            ("--record-session-mb", self.record_session_mb),
            ("--record-total-gb", self.record_total_gb),
            ("--record-days", self.record_days),
        ):
            if limit is not None and not limit > 0:
                raise SettingsError(f"{option} must be more than 0; leave it out for no limit")
        self.tenant_days()

    def tenant_days(self) -> dict[str, float]:
        """How long recordings of single tenants are kept. Raises SettingsError."""
        days = {}
        for given in _parts(self.record_tenant_days):
            name, separator, number = given.rpartition("=")
            try:
                days[name] = float(number)
            except ValueError:
                separator = ""
            if not separator or not days[name] > 0:
                raise SettingsError(f"--record-tenant-days {given}: give NAME=DAYS with more than 0 days")
        return days

    def secrets(self) -> tuple[str, ...]:
        """Every value that must not be written anywhere."""
        hidden = [getattr(self, one.name) for one in dataclasses.fields(self) if not one.repr]
        directory = urlsplit(self.directory or "").password
        return (
            *self.all_keys(),
            *(value for value in hidden if isinstance(value, str)),
            *self.phone_secret_of.values(),
            *((directory,) if directory else ()),
        )

    def _check_webrtc(self) -> None:
        for name, addresses in (
            ("--rtc-address", _parts(self.rtc_addresses)),
            ("--rtc-public-address", (self.rtc_public_address,) if self.rtc_public_address is not None else ()),
        ):
            for address in addresses:
                try:
                    ipaddress.ip_address(address)
                except ValueError:
                    raise SettingsError(f"{name} {address}: that is no IP address; give one, not a name") from None
        for url in _parts(self.ice_servers):
            if url.partition(":")[0] not in ("stun", "turn", "turns"):
                raise SettingsError(f"--ice-server {url}: begin it with stun:, turn: or turns:")
        relays = any(url.startswith("turn") for url in _parts(self.ice_servers))
        if relays and (self.ice_username is None or self.ice_credential is None):
            raise SettingsError("a TURN server needs --ice-username and --ice-credential")
        if self.ice_relay_only and not relays:
            raise SettingsError("--ice-relay-only needs a TURN server; give --ice-server turn:HOST:PORT")
        if not 6_000 <= self.rtc_bitrate <= 128_000:
            raise SettingsError("--rtc-bitrate must lie between 6000 and 128000")
        for origin in _parts(self.allow_origins):
            scheme, separator, rest = origin.partition("://")
            if scheme not in ("http", "https") or not separator or not rest or "/" in rest:
                raise SettingsError(f"--allow-origin {origin}: give scheme, host and port alone: https://app.example")

    def _check_telephony(self) -> None:
        for given in _parts(self.phone_secrets):
            vendor, separator, secret = given.partition("=")
            if not separator or not vendor or not secret:
                raise SettingsError("--phone-secret: give VENDOR=SECRET, such as twilio=AUTH_TOKEN")
        for network in _parts(self.phone_allow):
            try:
                ipaddress.ip_network(network)
            except ValueError as error:
                raise SettingsError(f"--phone-allow {network}: that is no address or network ({error})") from None
        if self.phone_url is not None and not self.phone_url.startswith(("ws://", "wss://")):
            raise SettingsError(f"--phone-url {self.phone_url}: begin it with wss:// (or ws://)")
        if self.phone_session is not None and not self.phone_session.is_file():
            raise SettingsError(f"--phone-session {self.phone_session}: there is no such file")
        for option, least, value in (
            ("--phone-greet-ms", 0, self.phone_greet_ms),
            ("--phone-keys-ms", 200, self.phone_keys_ms),
            ("--phone-per-number", 1, self.phone_per_number),
            ("--phone-per-number-minute", 1, self.phone_per_number_minute),
        ):
            if value is not None and not least <= value <= 60_000:
                raise SettingsError(f"{option} must lie between {least} and 60000")
        if self.audiosocket_port is not None and not 0 <= self.audiosocket_port <= 65535:
            raise SettingsError(f"--audiosocket-port {self.audiosocket_port} does not exist; choose one to 65535")
        if self.audiosocket_port is not None and not self.loopback and not self.phone_networks:
            raise SettingsError(
                "--audiosocket-port: whoever reaches it can call, so beyond loopback say who may: --phone-allow NETWORK"
            )

    @property
    def phone_secret_of(self) -> Mapping[str, str]:
        """The secret of each vendor that has one."""
        return {vendor: secret for vendor, _, secret in (given.partition("=") for given in _parts(self.phone_secrets))}

    @property
    def phone_networks(self) -> tuple[str, ...]:
        """Networks that telephone calls may come from; none: any."""
        return _parts(self.phone_allow)

    @property
    def origins(self) -> tuple[str, ...]:
        """Origins of pages elsewhere that may make calls."""
        return _parts(self.allow_origins)

    @property
    def ice_urls(self) -> tuple[str, ...]:
        """URLs of the STUN and TURN servers."""
        return _parts(self.ice_servers)

    @property
    def ice_addresses(self) -> tuple[str, ...] | None:
        """Local addresses that calls may use; None: all but loopback."""
        if self.rtc_addresses:
            return _parts(self.rtc_addresses)
        if self.host == "localhost":
            return ("127.0.0.1",)
        try:
            address = ipaddress.ip_address(self.host)
        except ValueError:
            return None
        return None if address.is_unspecified else (self.host,)

    def all_keys(self) -> tuple[str, ...]:
        """The API keys of the option, the variable and the file. Raises InvalidKey."""
        found = [key for given in self.api_keys for key in keys.split_keys(given, "--api-key")]
        if self.api_keys_file is not None:
            found += keys.read_keys(self.api_keys_file, "--api-keys-file")
        return tuple(found)

    @property
    def tls(self) -> bool:
        """Whether it is served over TLS."""
        return self.tls_cert is not None or self.tls_self_signed

    @property
    def loopback(self) -> bool:
        """Whether only this machine can connect."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def _on_loopback(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme == "http" and parts.hostname in ("localhost", "127.0.0.1", "::1")


_LANGUAGE = re.compile(r"[a-z]{2,3}")
"""ISO 639; what a session adds to it (en-US) is left away before a recognizer is asked."""


def _begins(url: str, *schemes: str) -> bool:
    scheme, separator, rest = url.partition("://")
    return scheme in schemes and bool(separator and rest.strip("/"))


def _parts(given: tuple[str, ...]) -> tuple[str, ...]:
    """The values of a repeatable setting, of which each may hold several, separated by commas."""
    return tuple(part.strip() for one in given for part in one.split(",") if part.strip())


def add_options(parser: argparse.ArgumentParser, *names: str) -> None:
    """Add the options of the settings `names` (none: all), in groups. An option not given stays out of the result."""
    hints = typing.get_type_hints(Settings)
    wanted = [setting for setting in dataclasses.fields(Settings) if not names or setting.name in names]
    used = {setting.metadata["group"] for setting in wanted}
    groups = {name: parser.add_argument_group(f"{name} ({about})") for name, about in GROUPS.items() if name in used}
    for setting in wanted:
        group = setting.metadata["group"]
        default = f" (default: {setting.default})" if setting.default not in (None, False, ()) else ""
        kind = _kind(hints[setting.name])
        groups[group].add_argument(
            option_of(setting),
            dest=setting.name,
            default=argparse.SUPPRESS,
            help=f"{setting.metadata['help']}{default} [{variable_of(setting)}]",
            **_action(kind),
            **setting.metadata["extra"],
        )


def option_of(setting: dataclasses.Field[typing.Any]) -> str:
    """Its option on the command line."""
    return f"--{setting.metadata['option'] or setting.name.replace('_', '-')}"


def variable_of(setting: dataclasses.Field[typing.Any]) -> str:
    """Its variable in the environment."""
    return f"TALKOVER_{setting.name.upper()}"


def _action(kind: type) -> dict[str, typing.Any]:
    if kind is bool:
        return {"action": "store_true"}
    if kind is tuple:
        return {"action": "append"}
    return {"type": kind}


def _kind(hint: typing.Any) -> type:
    if isinstance(hint, types.UnionType):
        hint = next(option for option in typing.get_args(hint) if option is not type(None))
    return typing.cast(type, typing.get_origin(hint) or hint)


_WORDS: Mapping[str, bool] = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}


def _truth(text: str) -> bool:
    try:
        return _WORDS[text.strip().lower()]
    except KeyError:
        raise ValueError(text) from None


def from_environment(options: Mapping[str, object], environment: Mapping[str, str] = os.environ) -> Settings:
    """Settings from the environment, overridden by `options` (names of fields). Raises SettingsError."""
    hints = typing.get_type_hints(Settings)
    values: dict[str, typing.Any] = {}
    for setting in dataclasses.fields(Settings):
        variable = variable_of(setting)
        if setting.name in options:
            given = options[setting.name]
            values[setting.name] = tuple(given) if isinstance(given, list) else given
        elif text := environment.get(variable):
            try:
                values[setting.name] = _read(_kind(hints[setting.name]), text)
            except ValueError:
                shown = "" if not setting.repr else f"={text!r}"
                raise SettingsError(f"{variable}{shown} is not a valid value") from None
    return Settings(**values).check()


def _read(kind: Callable[[str], object], text: str) -> object:
    if kind is bool:
        return _truth(text)
    return (text,) if kind is tuple else kind(text)
