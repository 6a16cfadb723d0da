"""A checkpoint folder as it describes itself: its JSON files, and the names, dtypes and shapes of its tensors.

The folder's name and place say nothing here. Weights are never loaded: a safetensors file begins with a JSON header
that lists its tensors (8 bytes of length, little-endian, then the header), and pickled files are not opened at all.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

CONFIG = "config.json"
_LONGEST_JSON = 64 << 20
_LONGEST_HEADER = 100_000_000
"""Bytes; the limit that the safetensors format itself sets."""
_DTYPE_BITS: Mapping[str, int] = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8,
    "U16": 16, "I16": 16, "F16": 16, "BF16": 16,
    "U32": 32, "I32": 32, "F32": 32, "U64": 64, "I64": 64, "F64": 64, "C64": 64,
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip


class CheckpointError(ValueError):
    """A checkpoint cannot be read or contradicts itself. `where` names the file, or file and field."""

    def __init__(self, where: str, message: str) -> None:
        super().__init__(f"{where}: {message}")
        self.where = where


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor of the weights. `dtype` in safetensors' spelling, such as "BF16"."""

    dtype: str
    shape: tuple[int, ...]


class Table:
    """A JSON object with the place that it came from; `at` of what is not there is None. Paths join keys by dots."""

    def __init__(self, file: str, fields: Mapping[str, Json], prefix: str = "") -> None:
        self.file = file
        self._fields = fields
        self._prefix = prefix

    def where(self, path: str) -> str:
        """ "config.json: talker_config.num_code_groups"."""
        return f"{self.file}: {self._prefix}{path}"

    def at(self, path: str) -> Json:
        """The value at `path`; None where it, or a table on the way, is not there. Raises CheckpointError."""
        value: Json = dict(self._fields)
        for number, key in enumerate(keys := path.split(".")):
            if value is None:
                return None
            if not isinstance(value, dict):
                raise CheckpointError(self.where(".".join(keys[:number])), "must be an object")
            value = value.get(key)
        return value

    def names(self) -> frozenset[str]:
        """Its own fields."""
        return frozenset(self._fields)

    def table(self, path: str) -> Table | None:
        """The object at `path`. Raises CheckpointError where it is something else."""
        value = self.at(path)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise CheckpointError(self.where(path), f"must be an object, not {short(value)}")
        return Table(self.file, value, f"{self._prefix}{path}.")

    def integer(self, path: str, *, least: int = 1) -> int | None:
        """The whole number at `path`. Raises CheckpointError where it is something else or below `least`."""
        value = self.at(path)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise CheckpointError(self.where(path), f"must be a whole number from {least} on, not {short(value)}")
        return value

    def integers(self, path: str, *, least: int = 0) -> tuple[int, ...] | None:
        """The whole numbers at `path`. Raises CheckpointError where they are something else."""
        value = self.at(path)
        if value is None:
            return None
        numbers = value if isinstance(value, list) else [None]
        if not all(isinstance(number, int) and not isinstance(number, bool) and number >= least for number in numbers):
            raise CheckpointError(
                self.where(path), f"must be a list of whole numbers from {least} on, not {short(value)}"
            )
        return tuple(number for number in numbers if isinstance(number, int))

    def truth(self, path: str) -> bool | None:
        """True or false at `path`. Raises CheckpointError where it is something else."""
        value = self.at(path)
        if value is not None and not isinstance(value, bool):
            raise CheckpointError(self.where(path), f"must be true or false, not {short(value)}")
        return value

    def text(self, path: str) -> str | None:
        """The text at `path`; an empty one is none. Raises CheckpointError where it is something else."""
        value = self.at(path)
        if value is not None and not isinstance(value, str):
            raise CheckpointError(self.where(path), f"must be a string, not {short(value)}")
        return value or None

    def digest(self) -> str:
        """Eight hexadecimal digits that change with any field."""
        canonical = json.dumps(self._fields, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:8]


def short(value: Json) -> str:
    """`value` for a message: escaped, and not longer than a line."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"


class Checkpoint:
    """A folder of a model's own files. Raises CheckpointError where `folder` is none."""

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise CheckpointError(
                str(folder), "is no folder; give the folder that holds the checkpoint's config.json and weights"
            )
        self.folder = folder

    def has(self, name: str) -> bool:
        """Whether there is such a file; `name` may lie in a subfolder."""
        return (self.folder / name).is_file()

    def table(self, name: str = CONFIG) -> Table | None:
        """A JSON file of the checkpoint; None where it is not there. Raises CheckpointError."""
        if not self.has(name):
            return None
        value = self._json(name)
        if not isinstance(value, dict):
            raise CheckpointError(name, "must hold a JSON object")
        return Table(name, value)

    def digest_of(self, *names: str) -> str | None:
        """Twelve hexadecimal digits over the first of `names` that is there; None where none is."""
        for name in names:
            if self.has(name):
                with (self.folder / name).open("rb") as file:
                    return hashlib.file_digest(file, "sha256").hexdigest()[:12]
        return None

    @cached_property
    def version(self) -> str:
        """Twelve hexadecimal digits over all its JSON files, and names and sizes of its weights.

        Not over the weights' contents: reading tens of gigabytes to print a description would keep everybody waiting.
        """
        digest = hashlib.sha256()
        for path in sorted(self.folder.rglob("*")):
            if not path.is_file():
                continue
            name = path.relative_to(self.folder).as_posix()
            if path.suffix == ".json" and path.stat().st_size <= _LONGEST_JSON:
                digest.update(f"{name}\0".encode() + path.read_bytes() + b"\0")
            elif path.suffix in (".safetensors", ".bin", ".pt", ".pth", ".onnx", ".gguf"):
                digest.update(f"{name}\0{path.stat().st_size}\0".encode())
        return digest.hexdigest()[:12]

    @cached_property
    def tensors(self) -> Mapping[str, TensorInfo] | None:
        """What its safetensors files in the folder itself hold; None where it has none. Raises CheckpointError."""
        if self.has("model.safetensors.index.json"):
            files = self._shards("model.safetensors.index.json")
        else:
            files = sorted(path.name for path in self.folder.glob("*.safetensors"))
        if not files:
            return None
        found: dict[str, TensorInfo] = {}
        for name in files:
            for tensor, info in self._header(name):
                found[tensor] = info
        return found

    def _json(self, name: str) -> Json:
        path = self.folder / name
        try:
            if path.stat().st_size > _LONGEST_JSON:
                raise CheckpointError(name, f"is longer than {_LONGEST_JSON >> 20} MiB; that is no description")
            value: Json = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise CheckpointError(name, f"cannot be read: {error.strerror}") from error
        except (ValueError, RecursionError) as error:
            if isinstance(error, CheckpointError):
                raise
            raise CheckpointError(name, f"is not JSON in UTF-8 ({error}); download it again") from error
        return value

    def _shards(self, index: str) -> list[str]:
        table = self.table(index)
        places = table.at("weight_map") if table else None
        if not isinstance(places, dict) or not places:
            raise CheckpointError(f"{index}: weight_map", "must name a file for each tensor")
        files = sorted({str(place) for place in places.values()})
        for name in files:
            if Path(name).name != name or not self.has(name):
                raise CheckpointError(name, f"is named by {index} but is not there; download the checkpoint again")
        return files

    def _header(self, name: str) -> Iterator[tuple[str, TensorInfo]]:
        """Raises CheckpointError for a file that is cut off or whose header does not add up."""
        path = self.folder / name
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or not 2 <= length <= min(_LONGEST_HEADER, size - 8):
                raise CheckpointError(name, "is cut off or no safetensors file; download it again")
            try:
                header = json.loads(file.read(length))
            except (ValueError, RecursionError) as error:
                raise CheckpointError(name, f"has a broken header ({error}); download it again") from error
        if not isinstance(header, dict):
            raise CheckpointError(name, "has a broken header; download it again")
        for tensor, entry in header.items():
            if tensor == "__metadata__":
                continue
            try:
                info = TensorInfo(str(entry["dtype"]), tuple(int(axis) for axis in entry["shape"]))
                begin, end = (int(offset) for offset in entry["data_offsets"])
            except (KeyError, TypeError, ValueError) as error:
                raise CheckpointError(f"{name}: {tensor}", "has a broken entry; download it again") from error
            bits = _DTYPE_BITS.get(info.dtype)
            if bits is not None and (end - begin) * 8 != math.prod(info.shape) * bits:
                raise CheckpointError(f"{name}: {tensor}", "its length is not that of its shape; download it again")
            if not 0 <= begin <= end <= size - 8 - length:
                raise CheckpointError(f"{name}: {tensor}", "lies beyond the end of the file, which is cut off")
            yield tensor, info
