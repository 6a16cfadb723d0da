"""The pages: what is served, as what, under which policy, and how much a first visit loads."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Route

from server import http
from server.pages import FOLDER, INDEX, TYPES, Pages

FIRST_LOAD = 200_000
"""Bytes that a first visit may load."""

MODULES = sorted(path.name for path in FOLDER.glob("*.js"))


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    pages = Pages()
    app = Starlette(
        routes=[
            Route("/", pages.index),
            Route("/replay/{recording}", pages.replay),
            Route("/web/{path:path}", pages.file),
        ],
        exception_handlers={HTTPException: http.from_exception},
    )
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://server") as client:
        yield client


async def test_every_file_has_its_type_and_the_policy(client: httpx.AsyncClient) -> None:
    served = [path.name for path in FOLDER.iterdir() if path.suffix in TYPES]
    assert INDEX in served
    for name in served:
        answer = await client.get("/" if name == INDEX else f"/web/{name}")
        assert answer.status_code == 200
        assert answer.headers["content-type"] == TYPES[f".{name.rpartition('.')[2]}"]
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.content == (FOLDER / name).read_bytes()


async def test_the_replay_page_is_there_with_all_that_it_loads(client: httpx.AsyncClient) -> None:
    page = await client.get("/replay/sess_1")
    assert (page.status_code, page.headers["content-type"]) == (200, TYPES[".html"])
    assert "default-src 'none'" in page.headers["content-security-policy"]
    loaded = set(re.findall(r'(?:src|href)="(/web/[^"]+)"', page.text))
    assert loaded >= {f"/web/replay/{path.name}" for path in (FOLDER / "replay").glob("*.js")}
    size = len(page.content)
    for name in loaded:
        answer = await client.get(name)
        assert answer.status_code == 200, name
        size += len(answer.content)
    assert size < FIRST_LOAD


async def test_what_has_not_changed_is_not_sent_again(client: httpx.AsyncClient) -> None:
    first = await client.get("/")
    assert first.headers["cache-control"] == "no-cache"
    again = await client.get("/", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert "content-security-policy" in again.headers


@pytest.mark.parametrize(
    "path",
    [
        "/web/",
        "/web/__init__.py",
        "/web/nothing.js",
        "/web/..%2fserver%2fapp.py",
        "/web/..%2f..%2fetc%2fpasswd.js",
        "/web/%2fetc%2fhostname.js",
        "/web/a%00.js",
    ],
)
async def test_nothing_else_is_served(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.get(path)
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "not_found"


def references(name: str) -> set[str]:
    """The files that a file names: by /web/… in a page, as a module by ./…, as a worklet by new URL."""
    text = (FOLDER / name).read_text()
    return set(re.findall(r"""["'(](?:/web/|\./)([\w.-]+\.(?:js|css|svg))["')]""", text))


def test_a_first_visit_loads_little_and_only_what_is_there() -> None:
    loaded: set[str] = set()
    waiting = {INDEX}
    while waiting:
        name = waiting.pop()
        loaded.add(name)
        waiting |= references(name) - loaded
    assert {name for name in loaded if name.endswith(".js")} == set(MODULES), "a module that nothing loads, or no file"
    assert sum((FOLDER / name).stat().st_size for name in loaded) <= FIRST_LOAD


@pytest.mark.parametrize("page", sorted(FOLDER.rglob("*.html")), ids=lambda page: page.parent.name)
def test_no_page_has_scripts_or_styles_in_it(page: Path) -> None:
    """What its policy would not let run."""
    text = page.read_text()
    assert re.findall(r"<style|\sstyle=|\son\w+=|javascript:", text, re.IGNORECASE) == []
    assert re.findall(r"<script(?![^>]*\ssrc=)", text, re.IGNORECASE) == []


LOADS = re.compile(r"""(?:src=|href=|import |from |import\(|url\(|fetch\(|URL\()\s*["'`]?(?:https?:)?//""")


def test_no_page_loads_anything_from_elsewhere() -> None:
    for path in FOLDER.iterdir():
        if path.suffix in TYPES:
            assert not LOADS.findall(path.read_text()), path.name


def test_what_the_page_will_ask_for_is_announced_in_its_head() -> None:
    page = (FOLDER / INDEX).read_text()
    announced = set(re.findall(r'rel="modulepreload" href="/web/([\w.-]+)"', page))
    assert announced | {"main.js", "tap-worklet.js"} == set(MODULES), "a module is found only after another was read"
