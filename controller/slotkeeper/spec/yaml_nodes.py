"""From PyYAML's node graph to JSON values, keeping the line of every field.

PyYAML scans and parses; which value a node has is decided here, as kubectl decides it.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Iterator
from typing import Any

import yaml

from slotkeeper.spec.yaml_scalars import Scalar, plain_scalar

# Enough for any file that a person writes; a few lines of aliases of aliases would exceed any memory. What kubectl
# prints of a whole cluster may hold more, but no more than it has characters.
MAX_VALUES = 100_000

_PLAIN = "!plain"
_YAML_TAG = "tag:yaml.org,2002:"


class UnreadableNode(Exception):
    """Something that YAML allows and that cannot become JSON. ``line`` counts from 1."""

    def __init__(self, line: int, problem: str) -> None:
        self.line = line
        self.problem = problem
        super().__init__(problem)


# libyaml's parser where PyYAML was built with it: it is faster, and the relative of kubectl's.
class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    yaml_implicit_resolvers: dict[str | None, Any] = {}  # noqa: RUF012 - PyYAML's own way


# Marks plain scalars, which PyYAML would otherwise not tell from those tagged !!str.
_Loader.add_implicit_resolver(_PLAIN, re.compile(".*", re.DOTALL), None)


def document_nodes(text: str) -> Iterator[yaml.Node]:
    """The root node of every document in ``text`` that is not empty. Raises yaml.YAMLError."""
    yield from yaml.compose_all(text, Loader=_Loader)


class NodeReader:
    """Turns one document into a JSON value. ``lines`` then has the line of every field, by path.

    ``characters``: how long the text is that the document comes from.
    """

    def __init__(self, characters: int = 0) -> None:
        self.lines: dict[str, int] = {}
        self._most_values = max(MAX_VALUES, characters)
        self._values = 0
        self._open: set[int] = set()

    def value(self, node: yaml.Node, path: str = "") -> object:
        """The value of ``node``. Raises UnreadableNode."""
        self._values += 1
        if self._values > self._most_values:
            raise UnreadableNode(_line(node), f"has more than {self._most_values} values, aliases included")
        if isinstance(node, yaml.ScalarNode):
            return _scalar(node)
        if id(node) in self._open:
            raise UnreadableNode(_line(node), "an anchor's value contains itself")
        self._open.add(id(node))
        try:
            return self._mapping(node, path) if isinstance(node, yaml.MappingNode) else self._list(node, path)
        finally:
            self._open.discard(id(node))

    def _list(self, node: yaml.Node, path: str) -> list[object]:
        result = []
        for index, item in enumerate(node.value):
            item_path = f"{path}[{index}]"
            self.lines[item_path] = _line(item)
            result.append(self.value(item, item_path))
        return result

    def _mapping(self, node: yaml.MappingNode, path: str) -> dict[str, object]:
        result: dict[str, object] = {}
        written: set[str] = set()
        for key_node, value_node in node.value:
            if _is_merge(key_node):
                # kubectl lets a merge replace the keys in front of it; most readers would not.
                result.update(self._merged(value_node, path))
                continue
            key = _key(key_node)
            if key in written:
                raise UnreadableNode(_line(key_node), f'the key "{key}" is written twice; write it once')
            written.add(key)
            key_path = f"{path}.{key}" if path else key
            self.lines[key_path] = _line(key_node)
            result[key] = self.value(value_node, key_path)
        return result

    def _merged(self, node: yaml.Node, path: str) -> dict[str, object]:
        sources = node.value if isinstance(node, yaml.SequenceNode) else [node]
        result: dict[str, object] = {}
        for source in reversed(sources):
            value = self.value(source, path) if isinstance(source, yaml.MappingNode) else None
            if not isinstance(value, dict):
                raise UnreadableNode(_line(node), "<< takes an object or a list of objects")
            result.update(value)
        return result


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _is_merge(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == _PLAIN and node.value == "<<"


def _key(node: yaml.Node) -> str:
    value = _scalar(node) if isinstance(node, yaml.ScalarNode) else None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int):
        return str(value)
    raise UnreadableNode(_line(node), "a key must be text; write it in quotes")


def _scalar(node: yaml.ScalarNode) -> Scalar:
    text: str = node.value
    if node.tag == _PLAIN:
        value = plain_scalar(text)
    elif node.tag == f"{_YAML_TAG}binary":
        value = _binary(node)
    elif node.tag.startswith(_YAML_TAG) and node.tag != f"{_YAML_TAG}str":
        value = _tagged(node)
    else:
        value = text
    if isinstance(value, float) and not math.isfinite(value):
        raise UnreadableNode(_line(node), f"{text} is not a number in JSON; write it in quotes")
    return value


def _tagged(node: yaml.ScalarNode) -> Scalar:
    """A scalar with a tag of YAML's own, such as ``!!int "5"``: the tag must fit the text."""
    kind = node.tag.removeprefix(_YAML_TAG)
    value = plain_scalar(node.value)
    fits = {
        "int": isinstance(value, int) and not isinstance(value, bool),
        "float": isinstance(value, int | float) and not isinstance(value, bool),
        "bool": isinstance(value, bool),
        "null": value is None,
    }
    if kind == "timestamp":
        return str(node.value)
    if kind not in fits:
        raise UnreadableNode(_line(node), f"the tag !!{kind} is not understood; leave it out")
    if not fits[kind]:
        raise UnreadableNode(_line(node), f"{node.value} is not a value for the tag !!{kind}")
    return value


def _binary(node: yaml.ScalarNode) -> str:
    try:
        return base64.b64decode("".join(node.value.split()), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise UnreadableNode(_line(node), "!!binary holds no base64 of UTF-8 text") from error
