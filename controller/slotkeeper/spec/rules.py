"""The CRD's own CEL rules, evaluated by cel-python on values with defaults filled in.

No rule is written here. Needs the extra ``slotkeeper[dev]``; import it lazily.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import celpy
from celpy import celtypes
from celpy.evaluation import CELEvalError

from slotkeeper.errors import InvalidField
from slotkeeper.spec.instants import parse_instant
from slotkeeper.spec.wording import shown

_RFC3339 = 'write RFC 3339, such as "2026-01-01T00:00:00Z"'
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def rule_findings(
    value: object, schema: Mapping[str, Any], path: str, earlier: list[InvalidField]
) -> list[InvalidField]:
    """Every rule of ``schema`` and of what is below it that ``value`` breaks.

    ``earlier`` are findings already known. The API server evaluates no rule for an object with any of them;
    here a rule that cannot be evaluated is passed over when something at or below its own value was found
    already, and all others are told at once.
    """
    findings: list[InvalidField] = []
    if isinstance(value, Mapping):
        for name, child in schema.get("properties", {}).items():
            if name in value:
                findings += rule_findings(value[name], child, f"{path}.{name}", earlier)
    elif isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            findings += rule_findings(item, schema["items"], f"{path}[{index}]", earlier)
    known = [finding.field for finding in (*earlier, *findings)]
    troubled = any(field == path or field.startswith((f"{path}.", f"{path}[")) for field in known)
    for rule in schema.get("x-kubernetes-validations", ()):
        finding = _broken(rule, value, schema, path, troubled)
        if finding is not None:
            findings.append(finding)
    return findings


def _broken(
    rule: Mapping[str, str], value: object, schema: Mapping[str, Any], path: str, troubled: bool
) -> InvalidField | None:
    """The finding for ``rule``, or None if it holds or cannot be judged because of an earlier finding."""
    try:
        self_value = _cel(value, schema)
        if isinstance(self_value, CELEvalError):
            problem = str(self_value.args[0])
            return None if troubled else InvalidField(path, f"{shown(value)}: {problem}", instead=_RFC3339)
        if _evaluate(rule["rule"], self_value):
            return None
        message = rule["message"]
        if "messageExpression" in rule:
            message = str(_evaluate(rule["messageExpression"], self_value))
    except CELEvalError:
        if troubled:
            return None
        message = rule["message"]
    below = rule.get("fieldPath", "")
    if below and isinstance(value, Mapping):
        value = value.get(below.removeprefix("."))
    problem, _, instead = message.partition("; ")
    # The value of a whole object says nothing that its path does not say better.
    told = problem if isinstance(value, Mapping) else f"{shown(value)}: {problem}"
    return InvalidField(path + below, told, instead=instead)


def _cel(value: object, schema: Mapping[str, Any]) -> Any:
    """``value`` as a CEL value of the type that ``schema`` gives it; an error for what is no instant."""
    match value:
        case bool():
            return celtypes.BoolType(value)
        case int():
            return celtypes.IntType(value) if -(2**63) <= value < 2**63 else CELEvalError("beyond 64 bits")
        case float():
            return celtypes.DoubleType(value)
        case str() if schema.get("format") == "date-time":
            return _instant(value)
        case str():
            return celtypes.StringType(value)
        case list():
            items = schema.get("items", {})
            return celtypes.ListType([_cel(item, items) for item in value])
        case Mapping():
            # As in the API server, a rule sees the fields that the schema names and no others.
            fields = schema.get("properties", {})
            return celtypes.MapType(
                {celtypes.StringType(name): _cel(value[name], fields[name]) for name in fields if name in value}
            )
    return None


def _instant(text: str) -> Any:
    try:
        return celtypes.TimestampType(parse_instant(text))
    except ValueError as error:
        # An error is a value in CEL: only a rule that reads the field fails.
        return CELEvalError(str(error))


def _evaluate(expression: str, self_value: Any) -> Any:
    return _program(expression).evaluate({"self": self_value})


@cache
def _environment() -> celpy.Environment:
    # cel-python raises the limit of the whole process here; our rules are far from needing it.
    limit = sys.getrecursionlimit()
    try:
        return celpy.Environment()
    finally:
        sys.setrecursionlimit(limit)


@cache
def _program(expression: str) -> celpy.Runner:
    environment = _environment()
    functions: Any = {"lowerAscii": _lower_ascii, "timestamp": _timestamp}
    return environment.program(environment.compile(expression), functions=functions)


# Kubernetes adds these two to CEL, or CEL has them and cel-python does not.
def _lower_ascii(text: str) -> celtypes.StringType:
    return celtypes.StringType("".join(c.lower() if c.isascii() else c for c in text))


def _timestamp(seconds: int) -> celtypes.TimestampType:
    return celtypes.TimestampType(_EPOCH + timedelta(seconds=int(seconds)))
