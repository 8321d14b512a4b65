"""Files of Kubernetes objects, read as kubectl reads them: for ``slotkeeper dev``.

Only reading; what an object says is checked by ``schema``. Stricter than kubectl in one thing: a key that is
written twice is an error, where kubectl silently takes the last.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from slotkeeper.errors import SlotkeeperError
from slotkeeper.spec.metadata import API_GROUP, KIND
from slotkeeper.spec.yaml_nodes import NodeReader, UnreadableNode, document_nodes
from slotkeeper.spec.yaml_scalars import json_integer, json_number

SUFFIXES = (".yaml", ".yml", ".json")


class UnreadableManifest(SlotkeeperError):
    """A file that is not YAML, or holds no Kubernetes objects. ``line`` counts from 1; 0 means the file."""

    def __init__(self, file: Path, line: int, problem: str) -> None:
        self.file = file
        self.line = line
        self.problem = problem
        super().__init__(f"{file}:{line}: {problem}" if line else f"{file}: {problem}")


class NothingThere(UnreadableManifest):
    """There is no file or folder of that name."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object of a file. ``line`` is where it starts, counted from 1; ``lines`` the lines of its fields.

    ``object`` has its namespace filled in. JSON files have no ``lines``.
    """

    file: Path
    line: int
    object: dict[str, Any]
    lines: Mapping[str, int] = field(default_factory=dict, repr=False, compare=False)

    @property
    def kind(self) -> str:
        """The object's kind."""
        return str(self.object["kind"])

    @property
    def ignored(self) -> bool:
        """Whether it is none of slotkeeper's; a wrong kind or version in our group is not ignored."""
        group, _, _ = str(self.object["apiVersion"]).partition("/")
        return group != API_GROUP

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name as they are written, for messages: neither is checked here."""
        metadata = self.object.get("metadata")
        if not isinstance(metadata, dict):
            return "", ""
        return str(metadata.get("namespace", "")), str(metadata.get("name", ""))

    def where(self, path: str = "") -> str:
        """``file:line`` of the field ``path`` (such as ``spec.cron[1]``), or of the nearest one around it."""
        while path and path not in self.lines:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return f"{self.file}:{self.lines.get(path, self.line)}"


def manifest_files(path: Path) -> list[Path]:
    """The files that ``path`` stands for: itself, or a folder's .yaml, .yml and .json files, sorted.

    As with kubectl, folders inside it are not looked into. Raises NothingThere where there is no such file or folder,
    UnreadableManifest for a folder that may not be listed.
    """
    try:
        if path.is_dir():
            return sorted(file for file in path.iterdir() if file.suffix in SUFFIXES and file.is_file())
        path.stat()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NothingThere(path, 0, "there is no such file or folder") from error
    except OSError as error:
        raise UnreadableManifest(path, 0, f"cannot be read: {error.strerror}") from error
    return [path]


def read_manifests(path: Path, namespace: str = "default") -> list[Manifest]:
    """Every object of a file, or of the files of a folder, in order; lists of objects are taken apart.

    ``namespace`` is given to objects that name none. Raises UnreadableManifest at the first file that cannot
    be read: read ``manifest_files`` one by one to hear of all of them.
    """
    return [manifest for file in manifest_files(path) for manifest in _read_file(file, namespace)]


def manifests_in(content: bytes, file: Path, namespace: str = "default") -> list[Manifest]:
    """Every object of ``content``, such as standard input; ``file`` is its name in messages.

    As ``read_manifests`` otherwise.
    """
    return list(_read(content, file, namespace))


def _read_file(file: Path, namespace: str) -> Iterator[Manifest]:
    try:
        content = file.read_bytes()
    except OSError as error:
        raise UnreadableManifest(file, 0, f"cannot be read: {error.strerror}") from error
    yield from _read(content, file, namespace)


def _read(content: bytes, file: Path, namespace: str) -> Iterator[Manifest]:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableManifest(file, 0, f"is not UTF-8: {error.reason} at byte {error.start}") from error
    try:
        documents = _json_documents(text) or list(_yaml_documents(text))
    except UnreadableNode as error:
        raise UnreadableManifest(file, error.line, error.problem) from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        raise UnreadableManifest(file, line, f"is not YAML: {error.problem}") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise UnreadableManifest(file, 0, f"is not YAML: {error}") from error
    for value, line, lines in documents:
        if value is not None:
            yield from _objects(file, value, line, lines, namespace)


_Document = tuple[object, int, Mapping[str, int]]


def _yaml_documents(text: str) -> Iterator[_Document]:
    for node in document_nodes(text):
        reader = NodeReader(len(text))
        yield reader.value(node), node.start_mark.line + 1, reader.lines


def _json_documents(text: str) -> list[_Document]:
    """The JSON objects that ``text`` consists of; empty if it is something else, such as YAML in braces."""
    decoder = json.JSONDecoder(
        object_pairs_hook=_pairs,
        parse_int=_parse_int,
        parse_float=_parse_float,
        parse_constant=_parse_constant,
    )
    documents: list[_Document] = []
    position = len(text) - len(text.lstrip())
    while text.startswith("{", position):
        line = text.count("\n", 0, position) + 1
        try:
            value, end = decoder.raw_decode(text, position)
        except _UnreadableJson as error:
            raise UnreadableNode(line, str(error)) from error
        except ValueError:
            return []
        documents.append((value, line, {}))
        position = end + len(text[end:]) - len(text[end:].lstrip())
    return documents if position == len(text) else []


class _UnreadableJson(Exception):
    """Something that JSON's grammar allows and a Kubernetes object does not."""


def _pairs(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result: dict[str, object] = {}
    for key, value in pairs:
        if key in result:
            raise _UnreadableJson(f'the key "{key}" is written twice; write it once')
        result[key] = value
    return result


def _parse_int(digits: str) -> int | float:
    return json_integer(int(digits)) if len(digits) < 300 else _parse_float(digits)


def _parse_float(digits: str) -> int | float:
    number = float(digits)
    if number in (float("inf"), float("-inf")):
        raise _UnreadableJson("a number is too large; write it as a string")
    return json_number(number)


def _parse_constant(name: str) -> float:
    raise _UnreadableJson(f"{name} is not a number in JSON; write a string")


def _objects(file: Path, value: object, line: int, lines: Mapping[str, int], namespace: str) -> Iterator[Manifest]:
    if not isinstance(value, dict):
        raise UnreadableManifest(file, line, "is not an object; write apiVersion, kind, metadata and spec")
    for name in ("apiVersion", "kind"):
        if not isinstance(value.get(name), str) or not value[name]:
            example = {"apiVersion": f"{API_GROUP}/v1beta1", "kind": KIND}[name]
            raise UnreadableManifest(file, line, f"{name} is missing; write {name}: {example}")
    items = value.get("items")
    if value["kind"].endswith("List") and isinstance(items, list):
        for index, item in enumerate(items):
            below = f"items[{index}]"
            item_lines = {
                path[len(below) + 1 :]: number for path, number in lines.items() if path.startswith(f"{below}.")
            }
            yield from _objects(file, item, lines.get(below, line), item_lines, namespace)
        return
    metadata = value.get("metadata")
    if isinstance(metadata, dict) and not metadata.get("namespace"):
        metadata["namespace"] = namespace
    yield Manifest(file, line, value, lines)
