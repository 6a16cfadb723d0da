"""What a client asks for when it makes a call: an SDP offer, raw or in a form, and what it says of its session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from python_multipart.exceptions import FormParserError
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from . import http
from .carriers.webrtc import sdp
from .dialects.checks import INVALID_VALUE, MISSING, Json, Object, Rejected, a_string, an_object, parse, required

MAX_BODY: Final = 512 * 1024
"""Bytes of a request: an offer, and a session object."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A request for a call. `resumable`: the client may come back. `resume`: session and token, where it is back."""

    offer: sdp.Offer
    session: Object | None
    model: str
    resumable: bool
    resume: tuple[str, str] | None


async def read(request: Request) -> Wanted:
    """The request to make a call. Raises BodyRefused, OfferRefused, Rejected."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        offer, session = await _form(request)
    elif kind == "application/sdp":
        offer, session = await http.text(request, MAX_BODY), None
    else:
        raise http.BodyRefused(
            415,
            "unsupported_media_type",
            "send the SDP offer as application/sdp, or as the part `sdp` of multipart/form-data",
        )
    query = request.query_params
    resumable, resume = query.get("resume") in ("1", "true"), None
    if "resume_session" in query or "resume_token" in query:
        resume = (query.get("resume_session", ""), query.get("resume_token", ""))
    if session is not None and session.get("x_talkover") is not None:
        ours = dict(an_object(session["x_talkover"], "session.x_talkover"))
        wish = ours.pop("resume", None)
        session = {**session, "x_talkover": ours}
        if isinstance(wish, bool):
            resumable = wish
        elif wish is not None:
            resume = _resume_of(wish, "session.x_talkover.resume")
    model = query.get("model", "talkover")
    if session is not None and session.get("model") is not None:
        model = a_string(session["model"], "session.model", longest=512)
    return Wanted(sdp.read_offer(offer), session, model, resumable, resume)


async def _form(request: Request) -> tuple[str, Object | None]:
    """The parts `sdp` and `session`. Raises BodyRefused and Rejected."""
    try:
        body = http.pieces(request, MAX_BODY)
        parser = MultiPartParser(request.headers, body, max_files=4, max_fields=4, max_part_size=MAX_BODY)
        form = await parser.parse()
    except (MultiPartException, FormParserError, KeyError) as error:
        raise Rejected(INVALID_VALUE, f"the body is not multipart/form-data as it says ({str(error)[:100]})") from None
    try:
        parts = {name: await _part_text(name, form.get(name)) for name in ("sdp", "session")}
    finally:
        await form.close()
    if parts["sdp"] is None:
        raise Rejected(MISSING, "missing required parameter 'sdp': the part with the SDP offer", "sdp")
    session = parts["session"]
    return parts["sdp"], parse(session) if session is not None and session.strip() else None


async def _part_text(name: str, part: UploadFile | str | None) -> str | None:
    if not isinstance(part, UploadFile):
        return part
    try:
        return (await part.read()).decode("utf-8")
    except UnicodeDecodeError:
        raise Rejected(INVALID_VALUE, f"the part {name!r} is not UTF-8", name) from None


def _resume_of(wish: Json, path: str) -> tuple[str, str]:
    """Session and token of a client that is back. Raises Rejected."""
    asked = an_object(wish, path)
    session, token = (
        a_string(required(asked, key, f"{path}.{key}"), f"{path}.{key}", longest=256) for key in ("session", "token")
    )
    return session, token
