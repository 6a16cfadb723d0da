"""Offers that are taken, refused and set right; answers that fit them."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.carriers.webrtc import sdp
from server.carriers.webrtc.sdp import OfferRefused, read_offer, write_answer

HEAD = ["v=0", "o=- 1 1 IN IP4 127.0.0.1", "s=-", "t=0 0"]
SECURE = ["a=ice-ufrag:abcd", "a=ice-pwd:0123456789012345678901", "a=fingerprint:sha-256 AA:BB", "a=setup:actpass"]
AUDIO = [
    "m=audio 9 UDP/TLS/RTP/SAVPF 111 0",
    "c=IN IP4 0.0.0.0",
    *SECURE,
    "a=mid:0",
    "a=sendrecv",
    "a=rtcp-mux",
    "a=rtpmap:111 opus/48000/2",
    "a=rtpmap:0 PCMU/8000",
]
VIDEO = ["m=video 9 UDP/TLS/RTP/SAVPF 96", *SECURE, "a=mid:1", "a=rtcp-mux", "a=rtpmap:96 VP8/90000"]
DATA = ["m=application 9 UDP/DTLS/SCTP webrtc-datachannel", *SECURE, "a=mid:2", "a=sctp-port:5000"]


def text(*sections: list[str], bundle: str = "0 1 2", ending: str = "\r\n") -> str:
    lines = [*HEAD, f"a=group:BUNDLE {bundle}", *(line for section in sections for line in section)]
    return ending.join([*lines, ""])


def without(section: list[str], beginning: str) -> list[str]:
    return [line for line in section if not line.startswith(beginning)]


def test_audio_and_data_are_kept_as_they_are() -> None:
    offer = read_offer(text(AUDIO, DATA, bundle="0 2"))
    assert offer.kept == (0, 1)
    assert offer.data
    assert offer.text == text(AUDIO, DATA, bundle="0 2").replace("a=group:BUNDLE 0 2\r\n", "").replace(
        "t=0 0\r\n", "t=0 0\r\na=group:BUNDLE 0 2\r\n"
    )


def test_lines_may_end_in_any_way() -> None:
    assert read_offer(text(AUDIO, ending="\n")).text == read_offer(text(AUDIO)).text


def test_video_and_further_audio_are_left_out_and_rejected_in_the_answer() -> None:
    second = [line.replace("a=mid:0", "a=mid:3") for line in AUDIO]
    offer = read_offer(text(VIDEO, AUDIO, second, DATA, bundle="1 0 3 2"))
    assert offer.kept == (1, 3)
    assert "m=video" not in offer.text
    assert "a=group:BUNDLE 0 2" in offer.text
    answered = "\r\n".join([*HEAD, "a=group:BUNDLE 0 2", *AUDIO, *DATA, ""])
    answer = write_answer(answered, offer, bitrate=24_000, dtx=False)
    media = [line for line in answer.split("\r\n") if line.startswith(("m=", "a=mid", "a=inactive"))]
    assert media == [
        "m=video 0 UDP/TLS/RTP/SAVPF 96",
        "a=inactive",
        "a=mid:1",
        "m=audio 9 UDP/TLS/RTP/SAVPF 111 0",
        "a=mid:0",
        "m=audio 0 UDP/TLS/RTP/SAVPF 111 0",
        "a=inactive",
        "a=mid:3",
        "m=application 9 UDP/DTLS/SCTP webrtc-datachannel",
        "a=mid:2",
    ]


def test_the_answer_asks_for_redundancy_one_channel_and_a_bit_rate() -> None:
    offer = read_offer(text(AUDIO, bundle="0"))
    audio = [*AUDIO, "a=fmtp:111 something=else"]
    answer = write_answer("\r\n".join([*HEAD, *audio]), offer, bitrate=24_000, dtx=True)
    formats = [line for line in answer.split("\r\n") if line.startswith("a=fmtp")]
    assert formats == ["a=fmtp:111 minptime=10;useinbandfec=1;stereo=0;sprop-stereo=0;maxaveragebitrate=24000;usedtx=1"]


def test_host_candidates_are_given_the_public_address_and_others_are_left_alone() -> None:
    offer = read_offer(text(AUDIO, bundle="0"))
    host = "a=candidate:1 1 udp 2130706431 10.0.0.5 4000 typ host"
    relay = "a=candidate:2 1 udp 16777215 192.0.2.7 5000 typ relay raddr 0.0.0.0 rport 9"
    answer = write_answer(
        "\r\n".join([*HEAD, *AUDIO, host, relay]), offer, bitrate=24_000, dtx=False, public_address="198.51.100.1"
    )
    assert "a=candidate:1 1 udp 2130706431 198.51.100.1 4000 typ host" in answer
    assert relay in answer


def test_candidates_that_are_names_are_left_out_and_so_is_the_end_of_candidates() -> None:
    address = "a=candidate:1 1 udp 2113937151 192.0.2.1 4000 typ host"
    name = "a=candidate:2 1 udp 2113937151 5f2e-11.local 4001 typ host"
    offer = read_offer(text([*AUDIO, address, name, "a=end-of-candidates"], bundle="0"))
    assert address in offer.text
    assert ".local" not in offer.text
    assert "end-of-candidates" not in offer.text
    assert "end-of-candidates" not in read_offer(text([*AUDIO, "a=end-of-candidates"], bundle="0")).text


def test_no_more_candidates_are_tried_than_a_bound() -> None:
    many = [f"a=candidate:{n} 1 udp 1 192.0.2.1 {4000 + n} typ host" for n in range(500)]
    assert read_offer(text([*AUDIO, *many], bundle="0")).text.count("a=candidate") == sdp.CANDIDATES_MOST


@pytest.mark.parametrize(
    ("offer", "code", "names"),
    [
        ("", sdp.INVALID, "not SDP"),
        ("{}", sdp.INVALID, "not SDP"),
        ("v=0\r\nhello\r\n", sdp.INVALID, "'hello'"),
        ("v=0\r\n", sdp.NO_AUDIO, "no media section"),
        (text(DATA), sdp.NO_AUDIO, "audio"),
        (text(VIDEO, DATA), sdp.NO_AUDIO, "audio"),
        (text(["m=audio 0 UDP/TLS/RTP/SAVPF 111", *AUDIO[1:]]), sdp.NO_AUDIO, "audio"),
        (text(without(AUDIO, "a=rtpmap:111")), sdp.WRONG_CODEC, "opus/48000/2"),
        (text(["m=audio 9 UDP/TLS/RTP/SAVPF 0", *AUDIO[1:]]), sdp.WRONG_CODEC, "opus/48000/2"),
        (text(without(AUDIO, "a=ice-ufrag")), sdp.INVALID, "a=ice-ufrag"),
        (text(without(AUDIO, "a=ice-pwd")), sdp.INVALID, "a=ice-pwd"),
        (text(without(AUDIO, "a=fingerprint")), sdp.INVALID, "a=fingerprint"),
        (text(without(AUDIO, "a=setup")), sdp.INVALID, "a=setup"),
        (text(without(AUDIO, "a=mid")), sdp.INVALID, "a=mid"),
        (text([*AUDIO, "a=mid:7"]), sdp.INVALID, "a=mid"),
        (text([line.replace("a=mid:0", "a=mid:") for line in AUDIO]), sdp.INVALID, "a=mid"),
        (text(without(AUDIO, "a=rtcp-mux")), sdp.INVALID, "a=rtcp-mux"),
        (text(AUDIO, [line.replace("a=mid:2", "a=mid:0") for line in DATA]), sdp.INVALID, "the same a=mid:0"),
        (text(AUDIO, without(DATA, "a=ice-pwd")), sdp.INVALID, "application section has no ICE password"),
        (text(["m=audio nine UDP/TLS/RTP/SAVPF 111"]), sdp.INVALID, "media line"),
        (text(*[VIDEO] * 40), sdp.INVALID, "media sections"),
        (text(AUDIO) + "a=x\r\n" * 100_000, sdp.INVALID, "characters"),
    ],
)
def test_an_offer_that_cannot_be_is_refused_by_what_is_wrong_with_it(offer: str, code: str, names: str) -> None:
    with pytest.raises(OfferRefused) as refused:
        read_offer(offer)
    assert refused.value.code == code
    assert names in refused.value.message


def test_what_stands_at_the_session_counts_for_its_sections() -> None:
    session = ["v=0", "o=- 1 1 IN IP4 127.0.0.1", "s=-", "t=0 0", *SECURE]
    bare = AUDIO
    for line in SECURE:
        bare = [one for one in bare if one != line]
    assert read_offer("\r\n".join([*session, *bare])).kept == (0,)


@given(st.data())
def test_whatever_becomes_of_an_offer_on_its_way_it_is_taken_or_refused(data: st.DataObject) -> None:
    lines = text(VIDEO, AUDIO, DATA).split("\r\n")
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(lines) - 1))
        match data.draw(st.sampled_from(("drop", "repeat", "cut", "swap", "write"))):
            case "drop" if len(lines) > 1:
                del lines[place]
            case "repeat":
                lines.insert(place, lines[data.draw(st.integers(0, len(lines) - 1))])
            case "cut":
                lines[place] = lines[place][: data.draw(st.integers(0, 40))]
            case "swap":
                other = data.draw(st.integers(0, len(lines) - 1))
                lines[place], lines[other] = lines[other], lines[place]
            case _:
                lines[place] = data.draw(st.text(max_size=30))
    with contextlib.suppress(OfferRefused):
        offer = read_offer("\r\n".join(lines))
        assert [offer.sections[place].kind for place in offer.kept].count("audio") == 1
        assert "m=video" not in offer.text
