"""Recordings over HTTP, for those who may: listed, looked into, listened to, deleted (docs/recordings-api.md).

A client sees the recordings of its own tenant: those that were made with its API key. An ephemeral key opens sessions
and nothing else. Whatever is not there for somebody is answered with 404, so that nobody learns what others have.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from sessions.core.records import Plain
from sessions.core.timeline import TICK_RATE
from sessions.recording.flac import TrackError
from sessions.recording.format import MANIFEST, JournalError, session_of
from sessions.recording.retention import Entry, delete, entries
from sessions.replay.alterations import AlterationError

from . import http
from .auth import Access, Denied, Scope
from .dialects.checks import INVALID_JSON, Rejected
from .recording_runs import LONGEST as LONGEST_RUN
from .recording_runs import Overloaded, Runs, StillRunning, altered, check, explained
from .recording_shelf import LONGEST, Opened, Shelf, files, wav
from .recordings_brought import KEPT_S, PIECE, PREFIX, Brought, NoRoom

T = TypeVar("T")

BASE: Final = "/v1/talkover/recordings"
NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,100}")
"""What the name of a recording can be: no dot, no slash."""
TYPES: Final = {
    ".json": "application/json",
    ".jsonl": "application/x-ndjson",
    ".zst": "application/zstd",
    ".flac": "audio/flac",
    ".wav": "audio/wav",
}
HEADERS: Final = {
    "Cache-Control": "private, no-cache",
    "X-Content-Type-Options": "nosniff",
    # Pages of others may not have them played either.
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; sandbox",
}
MAX_BODY: Final = 16 << 10
MOST_BUCKETS: Final = 16_384
LARGEST: Final = 1 << 50
"""Positions beyond this are none: 700 years."""

Answer = Callable[[Request, Path], Awaitable[Response]]


class _NotThere(Exception):
    """What was asked for is not there, for this client."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Recordings:
    """The recordings below `root`, and their routes. `root`: None where the server records nothing.

    `live` says whether a session still runs. `denied` counts and answers a refusal of access.
    """

    def __init__(
        self,
        root: Path | None,
        access: Access,
        live: Callable[[str], bool],
        denied: Callable[[Denied], JSONResponse],
    ) -> None:
        self._root = root
        self._access = access
        self._session_runs = live
        self._denied = denied
        self._shelf = Shelf()
        self._runs = Runs()
        self._brought = Brought(self._drop_soon)
        # One thread: a look into a recording must not take the processors from conversations.
        self._worker = ThreadPoolExecutor(1, "recordings")

    def routes(self) -> list[BaseRoute]:
        one = f"{BASE}/{{recording}}"
        looks: list[tuple[str, Answer]] = [
            (f"{one}/interruptions", self._interruptions),
            (f"{one}/explanation", self._explanation),
            (f"{one}/chapters/{{chapter}}", self._chapter),
            (f"{one}/chapters/{{chapter}}/events", self._events),
            (f"{one}/peaks/{{track}}", self._peaks),
            (f"{one}/audio/{{track}}", self._audio),
            (f"{one}/{{file}}", self._file),
            (one, self._one),
        ]
        return [
            Route(BASE, self._guarded(self._list), methods=["GET"]),
            Route(BASE, self._guarded(self._bring), methods=["POST"]),
            Route(f"{one}/{{file}}", self._guarded(self._write), methods=["PUT"]),
            *(Route(path, self._guarded(self._found(answer)), methods=["GET"]) for path, answer in looks),
            Route(f"{one}/what-if", self._guarded(self._found(self._what_if)), methods=["POST"]),
            Route(one, self._guarded(self._found(self._delete)), methods=["DELETE"]),
        ]

    async def of(self, tenant: str) -> list[str]:
        """The ids of all recordings of a tenant, and of those that it brought."""
        root = self._root
        brought = self._brought.of(tenant)
        if root is None or not root.is_dir():
            return brought
        kept = await self._run(lambda: [entry.folder.name for entry in entries(root) if entry.tenant == tenant])
        return [*kept, *brought]

    async def delete(self, names: Sequence[str]) -> None:
        """Delete recordings, whether their sessions run or not. Raises OSError."""
        for name in names:
            if not self._brought.forget(name) and self._root is not None:
                await self._run(partial(self._remove, self._root / name))

    async def close(self) -> None:
        """Close what is open."""
        await self._runs.close()
        await self._run(self._shelf.close)
        self._worker.shutdown()
        self._brought.close()

    def _live(self, name: str) -> bool:
        """Whether the session of a recording, by the name of its folder, still runs."""
        return self._session_runs(session_of(name))

    def _drop_soon(self, folder: Path) -> None:
        self._worker.submit(self._drop, folder)

    def _drop(self, folder: Path) -> None:
        self._shelf.forget(folder)
        shutil.rmtree(folder, ignore_errors=True)

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._worker, work)

    # --- who sees what -----------------------------------------------------------------------------------------------

    def _guarded(
        self, answer: Callable[[Request, str], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """`answer` for a tenant, with what goes wrong as typed answers."""

        async def guarded(request: Request) -> Response:
            try:
                tenant = self._access.administration(request.headers, Scope.RECORDINGS).tenant
                response = await answer(request, tenant)
            except Denied as denied:
                return self._denied(denied)
            except _NotThere as missing:
                return http.error(404, missing.code, str(missing))
            except Rejected as rejected:
                return http.error(400, rejected.code, rejected.message, param=rejected.param)
            except http.BodyRefused as refused:
                return http.error(refused.status, refused.code, refused.message)
            except AlterationError as wrong:
                return http.error(400, "invalid_alteration", str(wrong).removeprefix("--"))
            except StillRunning as running:
                response = JSONResponse({"object": "talkover.run", "running_s": round(running.seconds, 1)}, 202)
            except (Overloaded, NoRoom) as full:
                return http.error(503, "server_busy", str(full), kind="server_error", headers={"Retry-After": "5"})
            except (JournalError, TrackError) as damaged:
                # Paths of this machine are nobody's business.
                message = self._brought.without_path(str(damaged)).replace(f"{self._root}/", "")
                return http.error(422, "recording_unreadable", message, kind="server_error")
            for name, value in HEADERS.items():
                response.headers.setdefault(name, value)
            return response

        return guarded

    def _found(self, answer: Answer) -> Callable[[Request, str], Awaitable[Response]]:
        async def found(request: Request, tenant: str) -> Response:
            name = request.path_params["recording"]
            if self._brought.holds(name, tenant):
                return await answer(request, await self._brought.folder(name))
            if name.startswith(PREFIX):
                raise _NotThere("recording_not_found", "it is not held any more; open its folder again")
            folder = self._folder / name if NAME.fullmatch(name) else None
            if folder is None or await self._run(lambda: _tenant_of(folder)) != tenant:
                raise _not_there(name)
            return await answer(request, folder)

        return found

    @property
    def _folder(self) -> Path:
        if self._root is None:
            raise _NotThere("recording_off", "this server records nothing; start it with --record DIR")
        return self._root

    async def _look(self, folder: Path, look: Callable[[Opened], T]) -> T:
        try:
            return await self._run(lambda: look(self._shelf.get(folder)))
        except FileNotFoundError:  # deleted in between
            raise _NotThere("recording_not_found", f"there is no recording {folder.name!r} any more") from None

    # --- what clients bring along ------------------------------------------------------------------------------------

    async def _bring(self, request: Request, tenant: str) -> Response:
        """POST /v1/talkover/recordings {}: room for a recording that the client has."""
        _object(await http.json_text(request, MAX_BODY))
        name = self._brought.new(tenant)
        return JSONResponse({"object": "talkover.recording", "id": name, "kept_s": KEPT_S, "piece": PIECE}, 201)

    async def _write(self, request: Request, tenant: str) -> Response:
        """PUT …/{recording}/{file}?at=: a piece of one of its files, which has `at` bytes so far."""
        name, file = request.path_params["recording"], request.path_params["file"]
        if not self._brought.holds(name, tenant):
            raise _not_there(name)
        at = _number("at", request.query_params.get("at", "0"))
        data = b"".join([piece async for piece in http.pieces(request, PIECE)])
        size = await self._brought.write(name, file, at, data)
        return JSONResponse({"object": "talkover.recording.file", "name": file, "size_bytes": size})

    # --- answers -----------------------------------------------------------------------------------------------------

    async def _list(self, request: Request, tenant: str) -> Response:
        """GET /v1/talkover/recordings: the newest first."""
        root = self._folder
        try:
            found = await self._run(lambda: entries(root))
        except FileNotFoundError:
            found = []  # nothing was recorded yet
        mine = sorted((entry for entry in found if entry.tenant == tenant), key=lambda entry: -entry.began)
        data = [self._shown(entry) for entry in mine]
        return JSONResponse({"object": "list", "data": data})

    def _shown(self, entry: Entry) -> dict[str, Plain]:
        return {
            "object": "talkover.recording",
            "id": entry.folder.name,
            "started": datetime.fromtimestamp(entry.began, UTC).isoformat(timespec="seconds"),
            "duration_s": None if entry.length is None else round(entry.length / TICK_RATE, 3),
            "size_bytes": entry.size,
            "ended": entry.ended,
            "live": self._live(entry.folder.name),
        }

    async def _one(self, request: Request, folder: Path) -> Response:
        """GET …/{recording}: what it holds."""

        def look(opened: Opened) -> dict[str, Plain]:
            manifest = opened.manifest()
            tracks = opened.tracks()
            chapters: list[Plain] = list(opened.view.chapters)
            ends = [int(track["starts"]) + int(track["length"]) for track in tracks if isinstance(track, dict)]  # type: ignore[arg-type]
            length = manifest.get("length")
            return {
                "object": "talkover.recording",
                "id": folder.name,
                "live": self._live(folder.name),
                "brought": folder.name.startswith(PREFIX),
                "length": length if isinstance(length, int) else max([*ends, opened.view.chapters[-1]]),
                "tracks": tracks,
                "chapters": chapters,
                "files": [{"name": path.name, "size_bytes": path.stat().st_size} for path in files(folder)],
                "manifest": manifest,
            }

        return JSONResponse(await self._look(folder, look))

    async def _interruptions(self, request: Request, folder: Path) -> Response:
        """GET …/{recording}/interruptions: every epoch of the session."""
        found = await self._look(folder, lambda opened: opened.view.interruptions())
        return JSONResponse({"interruptions": found})

    async def _chapter(self, request: Request, folder: Path) -> Response:
        """GET …/{recording}/chapters/{chapter}: what is drawn of it."""
        number = _number("chapter", request.path_params["chapter"])

        def look(opened: Opened) -> dict[str, Plain]:
            _check_chapter(opened, number)
            return {"chapter": number, "finished": opened.view.finished(number), **opened.view.marks(number)}

        return JSONResponse(await self._look(folder, look))

    async def _events(self, request: Request, folder: Path) -> Response:
        """GET …/{recording}/chapters/{chapter}/events: every event of it with its effects."""
        number = _number("chapter", request.path_params["chapter"])

        def look(opened: Opened) -> list[Plain]:
            _check_chapter(opened, number)
            return opened.view.events(number)

        return JSONResponse({"chapter": number, "events": await self._look(folder, look)})

    async def _peaks(self, request: Request, folder: Path) -> Response:
        """GET …/{recording}/peaks/{track}?level=&first=&count=: pairs of int8, the least and the greatest."""
        track = request.path_params["track"]
        asked = request.query_params
        level, first = (_number(name, asked.get(name, "0")) for name in ("level", "first"))
        count = _number("count", asked.get("count", "1024"), MOST_BUCKETS)

        def look(opened: Opened) -> bytes:
            try:
                return opened.peaks(track, level, first, count)
            except KeyError:
                raise _no_track(track) from None
            except ValueError as error:
                raise Rejected("invalid_value", str(error), "level") from None

        return Response(await self._look(folder, look), media_type="application/octet-stream")

    async def _audio(self, request: Request, folder: Path) -> Response:
        """GET …/{recording}/audio/{track}?from=&to=: a stretch of a track, in ticks of its own positions, as WAV."""
        track = request.path_params["track"]
        start = _number("from", request.query_params.get("from", "0"))
        end = _number("to", request.query_params.get("to", str(start + LONGEST)))
        if not start < end <= start + LONGEST:
            raise Rejected("invalid_value", f"'to' must be after 'from', by at most {LONGEST} ticks", "to")

        def look(opened: Opened) -> bytes:
            try:
                return wav(*opened.samples(track, start, end))
            except KeyError:
                raise _no_track(track) from None

        return Response(await self._look(folder, look), media_type="audio/wav")

    async def _what_if(self, request: Request, folder: Path) -> Response:
        """POST …/{recording}/what-if {"set": [...], "drop": [...], "shift": [...]}: how it would have gone.

        202 where it takes longer: whoever asks the same again waits on for it.
        """
        set_, drop, shift = _alterations(await http.json_text(request, MAX_BODY))
        check(set_, drop, shift)
        await self._check_length(folder)
        return JSONResponse(await self._runs.run(altered, folder, set_, drop, shift))

    async def _explanation(self, request: Request, folder: Path) -> Response:
        """GET …/{recording}/explanation: each interruption and late answer, in words; 202 as for `what-if`."""
        await self._check_length(folder)
        return PlainTextResponse(await self._runs.run(explained, folder))

    async def _check_length(self, folder: Path) -> None:
        """Raises BodyRefused (413) for a session that is too long to be gone through at once."""
        length = (await self._look(folder, lambda opened: opened.manifest())).get("length")
        if isinstance(length, int) and length > LONGEST_RUN:
            hours = LONGEST_RUN // TICK_RATE // 3600
            message = f"sessions of at most {hours} hours are gone through here; use `talkover` beside the server"
            raise http.BodyRefused(413, "recording_too_long", message)

    async def _file(self, request: Request, folder: Path) -> Response:
        """GET …/{recording}/{file}: a file as it lies there; ranges are served."""
        name = request.path_params["file"]
        # Looked for among what is there, never joined to a path.
        path = next((path for path in await self._run(lambda: files(folder)) if path.name == name), None)
        if path is None:
            raise _NotThere("file_not_found", f"recording {folder.name} has no file {name[:80]!r}")
        kind = TYPES.get(path.suffix, "application/octet-stream")
        return FileResponse(path, media_type=kind, filename=f"{folder.name}-{name}", content_disposition_type="inline")

    async def _delete(self, request: Request, folder: Path) -> Response:
        """DELETE …/{recording}."""
        if self._brought.forget(folder.name):
            return JSONResponse({"object": "talkover.recording.deleted", "id": folder.name, "deleted": True})
        if self._live(folder.name):
            message = f"session {folder.name} still runs; end it first"
            return http.error(409, "session_live", message)

        try:
            await self._run(partial(self._remove, folder))
        except FileNotFoundError:
            raise _NotThere("recording_not_found", f"there is no recording {folder.name!r} any more") from None
        return JSONResponse({"object": "talkover.recording.deleted", "id": folder.name, "deleted": True})

    def _remove(self, folder: Path) -> None:
        self._shelf.forget(folder)
        delete(folder)


def _tenant_of(folder: Path) -> str | None:
    """Whose recording it is; None where it is none."""
    try:
        manifest = None if folder.is_symlink() else json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(manifest, dict):
        return None
    config = manifest.get("config")
    tenant = manifest.get("tenant", config.get("tenant", "") if isinstance(config, dict) else "")
    return tenant if isinstance(tenant, str) else None


def _number(name: str, text: str, most: int = LARGEST) -> int:
    """A whole number from 0 on. Raises Rejected."""
    if not (text.isascii() and text.isdigit() and len(text) < 17 and int(text) <= most):
        raise Rejected("invalid_value", f"{name!r} must be a whole number from 0 to {most}", name)
    return int(text)


def _alterations(text: str) -> tuple[list[str], list[str], list[str]]:
    """The lists "set", "drop" and "shift" of a body. Raises Rejected."""
    body = _object(text)
    found: list[list[str]] = []
    for name in ("set", "drop", "shift"):
        given = body.get(name, [])
        if not isinstance(given, list) or len(given) > 50 or not all(isinstance(one, str) for one in given):
            raise Rejected("invalid_type", f"{name!r} must be a list of at most 50 texts", name)
        found.append([one[:200] for one in given])
    return found[0], found[1], found[2]


def _object(text: str) -> dict[str, object]:
    """The JSON object of a body. Raises Rejected."""
    try:
        body = json.loads(text or "{}")
    except (ValueError, RecursionError):
        raise Rejected(INVALID_JSON, "the body is not JSON") from None
    if not isinstance(body, dict):
        raise Rejected("invalid_type", "the body must be an object")
    return body


def _not_there(name: str) -> _NotThere:
    return _NotThere("recording_not_found", f"there is no recording {name[:80]!r}")


def _check_chapter(opened: Opened, number: int) -> None:
    if number >= len(opened.view.chapters):
        raise _NotThere("chapter_not_found", f"there are {len(opened.view.chapters)} chapters, counted from 0")


def _no_track(name: str) -> _NotThere:
    return _NotThere("track_not_found", f"there is no track {name[:80]!r}; the recording names those that it has")
