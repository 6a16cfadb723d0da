"""What can go wrong with a model that runs elsewhere, each as a typed error that names the setting and the remedy."""

from __future__ import annotations

import json

import httpx

_LONGEST = 200
"""Characters of what a peer says that are shown."""

_REMEDIES: dict[int, str] = {
    400: "the server did not understand the request; does it speak this protocol?",
    401: "check the key",
    403: "check the key",
    404: "check the address and the model's name",
    413: "what was sent is too long for that server",
    429: "that server is busy; try again later",
    503: "that server is busy or starting; try again later",
}


class RemoteError(Exception):
    """A remote model could not do its part. `code` is for programs, the message for people, with a remedy.

    `code`: "remote_unreachable", "remote_timeout", "remote_http_status", "remote_refused" (it says so itself),
    "remote_bad_response" (what came is not the protocol), "remote_lost" (the connection ended in the middle),
    "remote_stalled" (it is there and does nothing), "remote_closed" (it was closed here).
    `status`: the HTTP status, 0 where there was none.
    """

    def __init__(self, code: str, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.code = code
        self.status = status


def shown(text: str, key: str = "") -> str:
    """`text` of a peer as it may be shown: short, printable, without `key`."""
    cut = (text.replace(key, "***") if key else text)[:_LONGEST]
    return "".join(character if character.isprintable() else " " for character in cut).strip()


def status_error(setting: str, url: str, status: int, body: bytes, key: str = "") -> RemoteError:
    """The error for an HTTP status; `setting` is the option that named `url`."""
    detail = body.decode("utf-8", "replace")
    try:
        parsed = json.loads(detail)
        detail = str(parsed["error"]["message"])
    except (ValueError, KeyError, TypeError):
        pass
    hint = _REMEDIES.get(status, "see that server's log")
    said = f": {shown(detail, key)}" if detail.strip() else ""
    return RemoteError("remote_http_status", f"{setting}: {url} answered {status}{said}; {hint}", status)


def transport_error(setting: str, url: str, error: Exception, key: str = "") -> Exception:
    """The typed error for what the HTTP library or the system raised; any other error as it is."""
    detail = shown(str(error), key) or type(error).__name__
    match error:
        case httpx.TimeoutException() | TimeoutError():
            return RemoteError(
                "remote_timeout",
                f"{setting}: {url} was silent for too long ({type(error).__name__}); is it overloaded?",
            )
        case httpx.InvalidURL():
            return RemoteError("remote_unreachable", f"{setting}: {shown(url, key)} is no address; {detail}")
        case httpx.RemoteProtocolError():
            return RemoteError(
                "remote_lost", f"{setting}: {url} ended the connection ({detail}); see that server's log"
            )
        case httpx.TransportError() | OSError():
            return RemoteError(
                "remote_unreachable", f"{setting}: {url} cannot be reached ({detail}); check address and network"
            )
    return error
