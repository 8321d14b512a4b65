"""Types, enumerations, bounds, required and unknown fields: what OpenAPI can say, checked by jsonschema.

The rules written in CEL are in ``rules``. Needs the extra ``slotkeeper[dev]``; import it lazily.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend

from slotkeeper.errors import InvalidField
from slotkeeper.spec.wording import instead_of_unknown, json_type, nearest, shown

# The keywords of the CRD that are checked here. A test fails when the CRD begins to use another.
CHECKED_KEYWORDS = {
    "enum",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maximum",
    "minItems",
    "minLength",
    "minimum",
    "properties",
    "required",
    "type",
}

_INSTEAD_OF_VALUE = {
    (
        "overlapPolicy",
        "Forbid",
    ): 'write "Queue", which does the same as Forbid with catchUp.policy RunOnce, or "Skip"',
    ("policy", "Latest"): 'write "RunOnce"',
    ("policy", "All"): 'write "RunAll"',
    ("policy", "None"): 'write "Skip"',
}
# The shape the API server accepts; ranges of the parts are checked below.
_DATE_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:.\d+)?(?:[Zz]|[+-]\d\d:\d\d)", re.ASCII)
_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)

_Errors = Iterator[ValidationError]


def structure_findings(obj: Mapping[str, object], schema: Mapping[str, object]) -> list[InvalidField]:
    """Every finding of the OpenAPI ``schema`` in ``obj``; of the status only unknown fields."""
    elsewhere = _paths_by_name(schema)
    validator = _validator_class()(_json_schema(schema), format_checker=_format_checker())
    findings = []
    for error in validator.iter_errors(obj):
        path = list(error.absolute_path)
        if path[:1] in (["apiVersion"], ["kind"], ["metadata"]):
            continue  # `metadata` has better words for them
        if path[:1] == ["status"] and error.validator != "additionalProperties":
            continue
        findings.append(_finding(error, _dotted(path), elsewhere))
    return findings


def _validator_class() -> Any:
    # Python's jsonschema reports a missing or unknown field at its parent; a user looks for the field itself.
    def required(_: Any, names: list[str], instance: object, __: object) -> _Errors:
        if isinstance(instance, dict):
            for name in names:
                if name not in instance:
                    yield ValidationError("required", path=[name])

    def unknown(_: Any, allowed: bool, instance: object, schema: Mapping[str, Any]) -> _Errors:
        if isinstance(instance, dict) and not allowed:
            for name in instance:
                if name not in schema["properties"]:
                    yield ValidationError("unknown", path=[name])

    checks = {"required": required, "additionalProperties": unknown}
    return extend(jsonschema.Draft202012Validator, checks)  # type: ignore[no-untyped-call]


def _json_schema(schema: Mapping[str, object]) -> dict[str, object]:
    """``schema`` as JSON Schema, refusing the fields that it does not name."""
    result: dict[str, object] = {key: value for key, value in schema.items() if key in CHECKED_KEYWORDS}
    fields, items = schema.get("properties"), schema.get("items")
    if isinstance(fields, Mapping):
        result["properties"] = {name: _json_schema(child) for name, child in fields.items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            result["additionalProperties"] = False
    if isinstance(items, Mapping):
        result["items"] = _json_schema(items)
    return result


def _format_checker() -> jsonschema.FormatChecker:
    checker = jsonschema.FormatChecker(formats=())
    checker.checkers = {
        "date-time": (lambda value: not isinstance(value, str) or _is_date_time(value), ()),
        "int32": (lambda value: _fits(value, 32), ()),
        "int64": (lambda value: _fits(value, 64), ()),
    }
    return checker


def _fits(value: object, bits: int) -> bool:
    return not isinstance(value, int | float) or -(2 ** (bits - 1)) <= value < 2 ** (bits - 1)


def _is_date_time(text: str) -> bool:
    match = _DATE_TIME.fullmatch(text)
    if match is None:
        return False
    year, month, day, hour, minute, second = map(int, match.groups())
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if not 1 <= month <= 12 or not 1 <= day <= _DAYS[month - 1] or (month == 2 and day == 29 and not leap):
        return False
    return hour <= 23 and minute <= 59 and second <= 59


def _finding(error: ValidationError, path: str, elsewhere: dict[str, str]) -> InvalidField:
    name, value = str(error.absolute_path[-1]), error.instance
    schema: Any = error.schema
    match error.validator:
        case "required":
            return InvalidField(path, "is required", instead="set it")
        case "additionalProperties":
            instead = instead_of_unknown(name, schema["properties"], elsewhere)
            return InvalidField(path, "unknown field", instead=instead)
        case "type":
            wanted = str(error.validator_value)
            problem = f"must be of type {wanted}, not {json_type(value)}: {shown(value)}"
            return InvalidField(path, problem, instead=_of_type(wanted, value))
        case "enum":
            return _wrong_word(path, name, value, [str(word) for word in schema["enum"]])
        case "format":
            return _wrong_format(path, value, str(schema["format"]))
        case _:
            return InvalidField(path, f"{shown(value)} {_out_of_bounds(error)}", instead=_bounds(schema))


def _of_type(wanted: str, value: object) -> str:
    if wanted == "array":
        return f"write a list: [{shown(value)}]" if isinstance(value, str | int) else "write a list"
    if wanted == "string":
        return f"write it in quotes: {shown(shown(value))}" if isinstance(value, int | float) else "write text"
    return {
        "object": "write an object with fields",
        "integer": "write a whole number without quotes",
        "boolean": "write true or false, without quotes",
    }[wanted]


def _wrong_word(path: str, name: str, value: object, words: list[str]) -> InvalidField:
    instead = _INSTEAD_OF_VALUE.get((name, str(value)))
    if instead is None:
        close = nearest(str(value), words)
        instead = f"write {shown(close)}" if close else "write one of them"
    return InvalidField(path, f"{shown(value)} is none of {', '.join(words)}", instead=instead)


def _wrong_format(path: str, value: object, name: str) -> InvalidField:
    if name == "date-time":
        instead = 'write RFC 3339 with an offset, such as "2026-01-01T00:00:00Z"'
        return InvalidField(path, f"{shown(value)} is not an instant", instead=instead)
    return InvalidField(path, f"{shown(value)} does not fit into {name}", instead="write a smaller number")


def _out_of_bounds(error: ValidationError) -> str:
    bound = error.validator_value
    texts = {
        "minimum": f"is below {bound}",
        "maximum": f"is above {bound}",
        "minLength": f"is shorter than {bound} characters" if bound != 1 else "is empty",
        "maxLength": f"is longer than {bound} characters",
        "minItems": f"has fewer than {bound} items" if bound != 1 else "is empty",
        "maxItems": f"has more than {bound} items",
    }
    return texts[str(error.validator)]


def _bounds(schema: Mapping[str, object]) -> str:
    for low, high, unit in (
        ("minimum", "maximum", ""),
        ("minLength", "maxLength", " characters"),
        ("minItems", "maxItems", " items"),
    ):
        if low in schema and high in schema:
            return f"write {schema[low]} to {schema[high]}{unit}"
        if low in schema:
            return f"write {schema[low]}{unit} or more"
        if high in schema:
            return f"write at most {schema[high]}{unit}"
    raise KeyError("a bound without a keyword for it")


def _dotted(path: list[str | int]) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


def _paths_by_name(schema: Mapping[str, object], path: str = "") -> dict[str, str]:
    """Names of spec fields that occur once, with their path: a field written one level too high is common."""
    found: dict[str, str] = {}
    fields = schema.get("properties")
    if isinstance(fields, Mapping):
        for name, child in fields.items():
            child_path = f"{path}.{name}" if path else name
            if child_path == "spec" or child_path.startswith("spec."):
                found.setdefault(name, child_path)
                for deeper, deep_path in _paths_by_name(child, child_path).items():
                    found.setdefault(deeper, deep_path)
    return found
