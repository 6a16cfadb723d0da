"""Offers as they come and answers as they go: what aiortc would stumble over is refused by name or set right.

SDP is RFC 8866, its use here RFC 9429 (JSEP) and RFC 7587 (Opus).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

LONGEST: Final = 256 * 1024
"""Characters of an offer."""
SECTIONS_MOST: Final = 32
CANDIDATES_MOST: Final = 64
"""Candidates of the client that are tried; each one costs connectivity checks."""

INVALID: Final = "invalid_sdp"
NO_AUDIO: Final = "no_audio"
WRONG_CODEC: Final = "unsupported_codec"

_MEDIA: Final = re.compile(r"m=([a-z]+) (\d+)(?:/\d+)? ([A-Z/]+) (\S.*)")
_MID: Final = re.compile(r"a=mid:[!-~]+")
_OPUS: Final = re.compile(r"a=rtpmap:(\d+) opus/48000/2", re.IGNORECASE)


class OfferRefused(Exception):
    """The offer is not taken; `code` is one of `INVALID`, `NO_AUDIO`, `WRONG_CODEC`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class Section:
    """One media section: its lines, the m-line first."""

    kind: str
    port: int
    profile: str
    formats: str
    lines: tuple[str, ...]

    def value(self, name: str) -> str | None:
        """The value of attribute `name`, "" for one without a value."""
        for line in self.lines:
            if line == f"a={name}":
                return ""
            if line.startswith(f"a={name}:"):
                return line.partition(":")[2]
        return None

    @property
    def open(self) -> bool:
        return self.port != 0 or self.value("bundle-only") is not None


@dataclass(frozen=True, slots=True)
class Offer:
    """A checked offer. `text` is what is given to aiortc: one audio section and at most one for data channels.

    `kept` holds the places of those sections in the offer, `sections` all of it, so that the answer has one section for
    each (RFC 3264 section 6).
    """

    text: str
    sections: tuple[Section, ...]
    kept: tuple[int, ...]

    @property
    def data(self) -> bool:
        """Whether there is a section for data channels."""
        return any(self.sections[place].kind == "application" for place in self.kept)


def read_offer(text: str) -> Offer:
    """Check an offer and leave out what is not for us: video, further audio, candidates that only mDNS resolves.

    Raises OfferRefused.
    """
    if len(text) > LONGEST:
        raise OfferRefused(INVALID, f"the offer has {len(text)} characters; at most {LONGEST} are taken")
    lines = [line.rstrip() for line in text.replace("\r\n", "\n").split("\n") if line.strip()]
    if not lines or lines[0] != "v=0":
        raise OfferRefused(INVALID, "the body is not SDP; send the offer of RTCPeerConnection.createOffer() as it is")
    session, sections = _split(lines)
    audio = next((place for place, one in enumerate(sections) if one.kind == "audio" and one.open), None)
    if audio is None:
        raise OfferRefused(NO_AUDIO, "the offer has no open audio section; add an audio track or transceiver to it")
    data = next(
        (place for place, one in enumerate(sections) if one.kind == "application" and one.open and _is_data(one)), None
    )
    kept = tuple(sorted(place for place in (audio, data) if place is not None))
    _check_audio(sections[audio])
    for place in kept:
        _check_transport(session, sections[place])
    mids = [sections[place].value("mid") for place in kept]
    if len(set(mids)) < len(mids):
        raise OfferRefused(INVALID, f"two sections of the offer have the same a=mid:{mids[0]}")
    head = [line for line in session if not line.startswith("a=group:")]
    bundles = [line.split()[1:] for line in session if line.startswith("a=group:BUNDLE")]
    bundled = [mid for mid in dict.fromkeys(bundles[0] if bundles else []) if mid in mids]
    if bundled:
        head.append(f"a=group:BUNDLE {' '.join(bundled)}")
    body = [line for place in kept for line in _without_names(sections[place]).lines]
    return Offer("\r\n".join([*head, *body, ""]), tuple(sections), kept)


def _split(lines: list[str]) -> tuple[list[str], list[Section]]:
    session: list[str] = []
    groups: list[list[str]] = []
    for line in lines:
        if not re.match(r"[a-z]=", line):
            raise OfferRefused(INVALID, f"the offer has a line that is not SDP: {line[:60]!r}")
        if line.startswith("m="):
            groups.append([line])
        elif groups:
            groups[-1].append(line)
        else:
            session.append(line)
    if not groups:
        raise OfferRefused(NO_AUDIO, "the offer has no media section; add an audio track or transceiver to it")
    if len(groups) > SECTIONS_MOST:
        raise OfferRefused(INVALID, f"the offer has {len(groups)} media sections; at most {SECTIONS_MOST} are taken")
    return session, [_section(group) for group in groups]


def _section(lines: list[str]) -> Section:
    found = _MEDIA.fullmatch(lines[0])
    if found is None:
        raise OfferRefused(INVALID, f"the offer has a media line that cannot be read: {lines[0][:60]!r}")
    return Section(found[1], int(found[2]), found[3], found[4], tuple(lines))


def _is_data(section: Section) -> bool:
    return "webrtc-datachannel" in section.formats or section.profile == "DTLS/SCTP"


def _check_audio(section: Section) -> None:
    payloads = section.formats.split()
    for line in section.lines:
        found = _OPUS.fullmatch(line)
        if found is not None and found[1] in payloads:
            break
    else:
        raise OfferRefused(
            WRONG_CODEC, "the audio section does not offer Opus (opus/48000/2), the one codec spoken here"
        )
    if section.value("rtcp-mux") is None:
        raise OfferRefused(INVALID, "the audio section has no a=rtcp-mux; audio is taken on one port only")


def _check_transport(session: list[str], section: Section) -> None:
    whole = Section("", 1, "", "", tuple(session))
    for name, what in (
        ("ice-ufrag", "ICE user name"),
        ("ice-pwd", "ICE password"),
        ("fingerprint", "DTLS fingerprint"),
    ):
        if not (section.value(name) or whole.value(name)):
            raise OfferRefused(INVALID, f"the {section.kind} section has no {what} (a={name})")
    names = [line for line in section.lines if line.startswith("a=mid:")]
    if len(names) != 1 or not _MID.fullmatch(names[0]):
        raise OfferRefused(INVALID, f"the {section.kind} section has no a=mid, or more than one")
    setup = section.value("setup") or whole.value("setup")
    if setup not in ("actpass", "active", "passive"):
        raise OfferRefused(INVALID, f"the {section.kind} section has no a=setup of actpass, active or passive")


def _without_names(section: Section) -> Section:
    """Without candidates that are names: resolving them asks the network by multicast and waits for a second each.

    The end of candidates is left out, too: a client of which no address is known shows one by its first check, and ICE
    would give up before.
    """
    lines: list[str] = []
    candidates = 0
    for line in section.lines:
        if line == "a=end-of-candidates":
            continue
        if line.startswith("a=candidate:"):
            words = line.split()
            candidates += 1
            if candidates > CANDIDATES_MOST or (len(words) > 4 and words[4].endswith(".local")):
                continue
        lines.append(line)
    return replace(section, lines=tuple(lines))


# --- the answer ------------------------------------------------------------------------------------------------------


def write_answer(answer: str, offer: Offer, *, bitrate: int, dtx: bool, public_address: str | None = None) -> str:
    """aiortc's `answer` with a section for each of the offer, what we wish of the client's encoder, and our address.

    `bitrate`: bit/s that the client's encoder is to stay below. `dtx`: whether it may send nothing in silence.
    `public_address`: the one under which the host candidates are reached from outside.
    """
    lines = [line for line in answer.replace("\r\n", "\n").split("\n") if line]
    session, answered = _split(lines)
    kept = {place: _tuned(section, bitrate, dtx) for place, section in zip(offer.kept, answered, strict=True)}
    out = list(session)
    for place, section in enumerate(offer.sections):
        out += kept[place].lines if place in kept else _rejected(section)
    if public_address is not None:
        out = [_republished(line, public_address) for line in out]
    return "\r\n".join([*out, ""])


def _rejected(section: Section) -> list[str]:
    lines = [f"m={section.kind} 0 {section.profile} {section.formats}", "c=IN IP4 0.0.0.0", "a=inactive"]
    mid = section.value("mid")
    return lines if mid is None else [*lines, f"a=mid:{mid}"]


def _tuned(section: Section, bitrate: int, dtx: bool) -> Section:
    """With our wishes for the client's Opus encoder (RFC 7587 section 6.1): it uses nothing of it unasked."""
    lines: list[str] = []
    for line in section.lines:
        found = _OPUS.fullmatch(line)
        if found is not None:
            wishes = {
                "minptime": 10,
                "useinbandfec": 1,
                "stereo": 0,
                "sprop-stereo": 0,
                "maxaveragebitrate": bitrate,
                "usedtx": int(dtx),
            }
            told = ";".join(f"{name}={value}" for name, value in wishes.items())
            lines += [line, f"a=fmtp:{found[1]} {told}"]
        elif not line.startswith("a=fmtp:"):
            lines.append(line)
    return replace(section, lines=tuple(lines))


def _republished(line: str, address: str) -> str:
    words = line.split()
    if line.startswith("a=candidate:") and len(words) >= 8 and words[7] == "host":
        words[4] = address
        return " ".join(words)
    return line
