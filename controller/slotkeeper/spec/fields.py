"""Reading typed fields out of a plain mapping, with errors that name the field's full path.

The objects read here were checked by the API server, or by ``schema``. A wrong type is therefore rare (an old
CRD, a hand-edited row), and told politely all the same. A field that nobody reads comes from a newer CRD.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import TypeVar

from slotkeeper.errors import InvalidField, NotYetSupported
from slotkeeper.spec.instants import parse_instant
from slotkeeper.spec.wording import json_type, shown

_Default = TypeVar("_Default")
_Choice = TypeVar("_Choice", bound=StrEnum)


class Fields:
    """The fields of one object at ``path``; each method reads one, ``end`` asks that none is left unread.

    A missing field and a null give the default. Every method raises InvalidField for a value of another type.
    """

    def __init__(self, value: object, path: str) -> None:
        if not isinstance(value, Mapping):
            raise _wrong_type(path, value, "object")
        self._values: Mapping[str, object] = value
        self._path = path
        self._read: set[str] = set()

    def path(self, name: str) -> str:
        """The full path of the field ``name``."""
        return f"{self._path}.{name}"

    def value(self, name: str) -> object:
        """The field as it is, None if missing."""
        self._read.add(name)
        return self._values.get(name)

    def text(self, name: str, default: _Default) -> str | _Default:
        """A string."""
        value = self.value(name)
        if value is None:
            return default
        return _text(value, self.path(name))

    def whole(self, name: str, default: _Default) -> int | _Default:
        """An integer."""
        value = self.value(name)
        if value is None:
            return default
        return _whole(value, self.path(name))

    def flag(self, name: str, default: bool) -> bool:
        """A boolean."""
        value = self.value(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise _wrong_type(self.path(name), value, "boolean")
        return value

    def instant(self, name: str, default: _Default) -> datetime | _Default:
        """An instant in RFC 3339, given back in UTC."""
        value = self.value(name)
        if value is None:
            return default
        return _instant(value, self.path(name))

    def choice(self, name: str, default: _Choice) -> _Choice:
        """One of the words of the default's enumeration."""
        value = self.value(name)
        if value is None:
            return default
        try:
            return type(default)(str(value))
        except ValueError:
            words = ", ".join(type(default))
            raise InvalidField(self.path(name), f"{shown(value)} is not one of {words}") from None

    def mapping(self, name: str) -> Mapping[str, object]:
        """An object whose fields are the user's own; empty if missing."""
        value = self.value(name)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise _wrong_type(self.path(name), value, "object")
        return value

    def section(self, name: str) -> Fields:
        """An object with fields of ours; one without fields if missing."""
        value = self.value(name)
        return Fields({} if value is None else value, self.path(name))

    def sections(self, name: str) -> list[Fields]:
        """A list of objects with fields of ours; empty if missing."""
        return [Fields(item, path) for path, item in self._items(name) or ()]

    def texts(self, name: str) -> tuple[str, ...] | None:
        """A list of strings."""
        items = self._items(name)
        return None if items is None else tuple(_text(item, path) for path, item in items)

    def wholes(self, name: str) -> tuple[int, ...] | None:
        """A list of integers."""
        items = self._items(name)
        return None if items is None else tuple(_whole(item, path) for path, item in items)

    def instants(self, name: str) -> tuple[datetime, ...] | None:
        """A list of instants."""
        items = self._items(name)
        return None if items is None else tuple(_instant(item, path) for path, item in items)

    def end(self) -> None:
        """Raise NotYetSupported for a field that was not read: it came with a CRD newer than this build."""
        for name in self._values:
            if name not in self._read and self._values[name] is not None:
                raise NotYetSupported(
                    self.path(name),
                    "this build does not know the field",
                    instead="upgrade the controller, or leave the field out",
                )

    def _items(self, name: str) -> list[tuple[str, object]] | None:
        value = self.value(name)
        if value is None:
            return None
        if not isinstance(value, list):
            raise _wrong_type(self.path(name), value, "array")
        return [(f"{self.path(name)}[{index}]", item) for index, item in enumerate(value)]


def required(value: _Default | None, field: str) -> _Default:
    """``value``, or InvalidField if it is None."""
    if value is None:
        raise InvalidField(field, "is required")
    return value


def _text(value: object, path: str) -> str:
    if not isinstance(value, str):
        raise _wrong_type(path, value, "string")
    return value


def _whole(value: object, path: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong_type(path, value, "integer")
    return value


def _instant(value: object, path: str) -> datetime:
    text = _text(value, path)
    try:
        return parse_instant(text)
    except ValueError as error:
        instead = 'write RFC 3339, such as "2026-01-01T00:00:00Z"'
        raise InvalidField(path, f"{shown(text)}: {error}", instead=instead) from None


def _wrong_type(path: str, value: object, wanted: str) -> InvalidField:
    return InvalidField(path, f"must be of type {wanted}, not {json_type(value)}: {shown(value)}")
