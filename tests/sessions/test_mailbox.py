from __future__ import annotations

from sessions.core.events import AudioArrived, Close, ItemCreate, TimerDue
from sessions.core.timeline import from_ms
from sessions.mailbox import Mail, Mailbox

CHUNK = b"\x01\x00" * 240
"""10 ms at 24 kHz."""


def audio(number: int, pcm: bytes | None = CHUNK) -> Mail:
    """The chunk with that number, of an unbroken input track."""
    return Mail(AudioArrived(from_ms(10 * number), from_ms(10 * number + 10)), pcm, 24_000)


def drain(box: Mailbox) -> list[Mail]:
    mails = []
    while (mail := box.take()) is not None:
        mails.append(mail)
    return mails


def test_mail_is_taken_in_the_order_in_which_it_came() -> None:
    box = Mailbox(1000)
    mails = [audio(0), Mail(TimerDue("pump")), audio(1), Mail(Close())]
    for mail in mails:
        assert box.put(mail) == 0
    assert len(box) == 4
    assert drain(box) == mails
    assert len(box) == 0


def test_an_empty_mailbox_gives_nothing() -> None:
    assert Mailbox(1000).take() is None


def test_of_too_much_audio_the_newest_is_kept_and_the_rest_stays_as_a_gap_in_its_place() -> None:
    box = Mailbox(2 * len(CHUNK))
    lost = [box.put(audio(number)) for number in range(5)]
    assert lost == [0, 0, 1, 1, 1]
    mails = drain(box)
    assert [mail.pcm is None for mail in mails] == [True, True, True, False, False]
    assert [mail.event for mail in mails] == [
        AudioArrived(from_ms(10 * number), from_ms(10 * number + 10), concealed=number < 3) for number in range(5)
    ]


def test_no_span_of_the_input_track_is_missing_after_an_overflow() -> None:
    box = Mailbox(len(CHUNK))
    for number in range(50):
        box.put(audio(number))
    spans = [mail.event for mail in drain(box)]
    assert all(isinstance(span, AudioArrived) for span in spans)
    ends = [0, *(span.end for span in spans if isinstance(span, AudioArrived))]
    assert [span.start for span in spans if isinstance(span, AudioArrived)] == ends[:-1]


def test_control_is_never_dropped_however_much_audio_comes() -> None:
    box = Mailbox(len(CHUNK))
    control = [Mail(TimerDue(str(number))) for number in range(20)]
    for number, mail in enumerate(control):
        box.put(mail)
        box.put(audio(number))
    assert [mail for mail in drain(box) if isinstance(mail.event, TimerDue)] == control


def test_a_single_message_larger_than_the_limit_is_kept() -> None:
    box = Mailbox(10)
    assert box.put(audio(0)) == 0
    mail = box.take()
    assert mail is not None
    assert mail.pcm == CHUNK


def test_what_was_taken_no_longer_counts() -> None:
    box = Mailbox(2 * len(CHUNK))
    for number in range(100):
        assert box.put(audio(number)) == 0
        assert box.audio_bytes == len(CHUNK)
        box.take()
    assert box.audio_bytes == 0


def test_a_gap_is_no_audio_and_costs_nothing() -> None:
    box = Mailbox(len(CHUNK))
    box.put(audio(0))
    assert box.put(audio(1, pcm=None)) == 0
    assert box.audio_bytes == len(CHUNK)


def test_audio_of_an_item_is_part_of_a_command_and_kept() -> None:
    box = Mailbox(len(CHUNK))
    item = Mail(ItemCreate("user", audio=AudioArrived(0, from_ms(10))), CHUNK, 24_000)
    box.put(item)
    for number in range(1, 10):
        box.put(audio(number))
    first = box.take()
    assert first is item
    assert first.pcm == CHUNK
