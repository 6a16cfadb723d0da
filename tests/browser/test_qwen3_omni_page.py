"""Qwen3-Omni in the voice page: shown an image, asked by voice and by keys, heard, cut, and the same when replayed.

Random weights of the true architecture: what comes is noise, but it is text and sound, in time, and can be interrupted.

.venv/bin/python -m pytest -m wide tests/browser/test_qwen3_omni_page.py
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, FilePayload

from sessions.replay.rerun import rerun
from tests.browser.chromium import needs_chromium
from tests.browser.listening import clip, loud_between
from tests.browser.voice_page import VoicePage
from tests.servers import ServerProcess
from tests.speech import RATE

pytestmark = [pytest.mark.browser, pytest.mark.models, pytest.mark.wide, needs_chromium]

CAPITAL = "What is the capital of France?"

PICTURE = """({width, height}) => {
    const canvas = Object.assign(document.createElement('canvas'), {width, height});
    const c = canvas.getContext('2d');
    const noise = c.createImageData(width, height);
    let state = 1;
    for (let at = 0; at < noise.data.length; at += 1) {
        state ^= state << 13;
        state ^= state >>> 17;
        state ^= state << 5;
        noise.data[at] = at % 4 === 3 ? 255 : state & 255;
    }
    c.putImageData(noise, 0, 0);
    return canvas.toDataURL('image/png').split(',')[1];
}"""
"""A picture that compresses badly, as a PNG file in base64."""

SENT = """
    window.sentEvents = [];
    const { send } = RTCDataChannel.prototype;
    RTCDataChannel.prototype.send = function (data) {
        if (this.label === 'oai-events') window.sentEvents.push(data);
        return send.call(this, data);
    };
"""
"""Keeps what the page sends as events."""

GIVE = """({encoded, name, kind}) => {
    const bytes = Uint8Array.from(atob(encoded), (letter) => letter.charCodeAt(0));
    const data = new DataTransfer();
    data.items.add(new File([bytes], name, {type: 'image/png'}));
    const given = kind === 'paste'
        ? new ClipboardEvent('paste', {clipboardData: data, bubbles: true, cancelable: true})
        : new DragEvent('drop', {dataTransfer: data, bubbles: true, cancelable: true});
    document.body.dispatchEvent(given);
    return given.defaultPrevented;
}"""
"""Pastes or drops a file onto the page; gives whether the page took it."""


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[tuple[ServerProcess, Path]]:
    """A server with the tiny model, and where its sessions are recorded."""
    arguments = ["--random-weights", "tiny", "--record", str(tmp_path)]
    with ServerProcess("qwen3-omni", arguments=arguments) as process:
        yield process, tmp_path


def picture(page: VoicePage, width: int, height: int) -> str:
    return str(page.page.evaluate(PICTURE, {"width": width, "height": height}))


def give(page: VoicePage, encoded: str, name: str, kind: str) -> bool:
    """Paste or drop a PNG file (base64); returns whether the page took it."""
    return bool(page.page.evaluate(GIVE, {"encoded": encoded, "name": name, "kind": kind}))


def waiting(page: VoicePage, count: int) -> None:
    """Until so many images wait to be sent."""
    page.wait("(count) => document.querySelectorAll('#attached li').length === count", count)


def shown(page: VoicePage) -> list[Any]:
    """The content of every item that the page sent with an image in it."""
    sent = [json.loads(message) for message in page.page.evaluate("() => window.sentEvents")]
    items = [event["item"]["content"] for event in sent if event["type"] == "conversation.item.create"]
    return [content for content in items if any(part["type"] == "input_image" for part in content)]


def heard(page: VoicePage, mark: int) -> str:
    """The answer to what was asked at event `mark`, as soon as it sounds; returns its id.

    Random weights may end an answer before they have said anything: then it is asked for again.
    """
    for _ in range(8):
        response = str(page.wait_event("response.created", mark).event["response"]["id"])
        page.wait(
            """(id) => window.probe.events.some(({event}) =>
                (event.type === 'output_audio_buffer.started' && event.response_id === id) ||
                (event.type === 'response.done' && event.response.id === id))""",
            response,
        )
        events = [one.event for one in page.events()[mark:]]
        if any(one["type"] == "output_audio_buffer.started" and one["response_id"] == response for one in events):
            return response
        status = [one["response"] for one in events if one["type"] == "response.done"][-1]
        assert status["status"] == "completed", status
        mark = page.mark()
        page.page.evaluate("() => window.probe.app.session.send({type: 'response.create'})")
    raise AssertionError("no answer said anything")


def digest(url: str) -> str:
    return hashlib.sha256(base64.b64decode(url.partition(",")[2])).hexdigest()


def test_an_image_and_speech_go_in_and_text_and_sound_come_out(
    browser: Browser, recorded: tuple[ServerProcess, Path]
) -> None:
    server, recordings = recorded
    with VoicePage(browser, server.base_url.removesuffix("/v1")) as page:
        page.page.add_init_script(script=SENT)
        page.visit()
        assert page.page.is_hidden("#attach")
        page.start()
        page.page.wait_for_selector("#attach:not([hidden])")

        # Chosen, put away again, chosen; then asked about by keys. It is far too large for a message as it is.
        large = base64.b64decode(picture(page, 900, 1400))
        assert len(large) > 1 << 20
        file = FilePayload(name="large.png", mimeType="image/png", buffer=large)
        page.page.set_input_files("#image-file", [file, file])
        waiting(page, 2)
        page.page.click("#attached li:first-child .remove")
        waiting(page, 1)
        mark = page.mark()
        page.ask("What is this?")
        added = page.wait_event("conversation.item.added", mark).event["item"]
        waiting(page, 0)
        ((image, words),) = shown(page)
        assert words == {"type": "input_text", "text": "What is this?"}
        assert added["content"][0] == {"type": "input_image", "x_sha256": digest(image["image_url"])}
        assert len(json.dumps(image)) < 160 * 1024
        assert page.page.locator(".caption[data-side=user] .thumbnail").count() == 1
        response = heard(page, mark)
        # Each stage of this answer by itself, as the server tells it.
        stages = ["features", "first_token", "first_code", "first_audio"]
        told = {
            one.event["stage"]: one.event
            for one in page.events()
            if one.type == "x_talkover.stage_reached" and one.event["response"] == response
        }
        # An image is encoded once: a second try has its features already.
        assert any(one.event["stage"] == "features" for one in page.events() if one.type == "x_talkover.stage_reached")
        assert {*stages[1:]} <= {*told}
        assert page.page.evaluate("() => window.probe.app.steps.response") == response
        names = page.page.eval_on_selector_all("#steps-list .step", "(all) => all.map(({ dataset }) => dataset.stage)")
        assert names == [stage for stage in stages if stage in told]
        assert all(float(text.split()[0]) >= 0 for text in page.page.locator("#steps-list b").all_inner_texts())

        # Cut by the page: silent at once, and what was not heard is struck.
        mark = page.mark()
        page.page.click("#stop")
        cleared = page.wait_event("x_talkover.playback_cleared", mark)
        done = page.wait_event("response.done", mark).event["response"]
        assert (cleared.event["response"], done["id"], done["status"]) == (response, response, "cancelled")
        page.page.wait_for_selector(".caption[data-side=agent][data-state=interrupted] .remark")

        # Dropped and pasted, and asked about aloud: it goes along with what is said.
        small = picture(page, 64, 48)
        assert give(page, small, "dropped.png", "drop")
        waiting(page, 1)
        assert give(page, small, "pasted.png", "paste")
        waiting(page, 2)
        mark = page.mark()
        said_at = page.say(clip("questions", CAPITAL).pcm, RATE)
        page.wait_event("input_audio_buffer.speech_started", mark)
        waiting(page, 0)
        page.wait_event("conversation.item.input_audio_transcription.completed", mark)
        heard(page, mark)
        page.sounded(0.3, since=said_at)
        assert len(shown(page)) == 3
        recording = page.recording()
        gates = page.gates(recording)
        assert page.faults == []
        kinds = [one.event["item"]["content"] for one in page.events()[mark:] if one.type == "conversation.item.added"]
        assert [[part["type"] for part in content] for content in kinds][:2] == [["input_image"], ["input_image"]]
    # Sound came of both answers, and none while the page's gate was shut between them.
    rate, agent = recording.rate, recording.agent
    shut = next(sample for sample, muted in gates if muted)
    opened = next(sample for sample, muted in gates if not muted and sample > shut)
    assert loud_between(agent, rate, 0, shut) >= 20  # a frame: it is cut as soon as it is heard
    assert loud_between(agent, rate, shut + rate // 50, opened) == 0
    assert loud_between(agent, rate, opened, 1 << 40) > 100
    server.stop()
    (folder,) = [path for path in recordings.iterdir() if path.is_dir()]
    result = rerun(folder)
    assert result.identical, result.difference


def test_what_is_no_image_is_refused_in_words_and_an_engine_that_does_not_see_is_shown_none(browser: Browser) -> None:
    with (
        ServerProcess("scripted", "[[reply]]\ntone_hz = 440\nseconds = 1.0\n") as blind,
        VoicePage(browser, blind.base_url.removesuffix("/v1"), records=False) as page,
    ):
        page.visit()
        page.start()
        assert page.page.is_hidden("#attach")
        assert not give(page, "AQID", "a.png", "paste")
        # As if it saw: what no browser can show is explained, and the conversation goes on.
        page.page.evaluate("() => { window.probe.app.images.show(true, 65536); }")
        assert give(page, "AQID", "broken.png", "paste")
        page.page.wait_for_selector("#notice[data-code=invalid_image]:not([hidden])")
        assert "broken.png" in page.text("#notice-title")
        mark = page.mark()
        page.ask("Anything.")
        page.answered(mark)
        # With its policy enforced.
        assert page.faults == []
