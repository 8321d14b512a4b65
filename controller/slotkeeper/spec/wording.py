"""How findings are worded: values shown short, and the word that a person probably meant.

Text only; what is right or wrong is decided elsewhere.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable

_SHOWN_CHARACTERS = 60

_HISTORY = "leave it out: how long history is kept is a setting of the installation, not of the object"

# What people know from CronJob and from other schedulers. Spelling mistakes need no entry here.
_OTHER_WORDS = {
    "concurrencypolicy": (
        "write overlapPolicy; what CronJob calls Forbid is overlapPolicy: Queue with catchUp.policy: RunOnce"
    ),
    "schedule": 'write cron, which is a list: cron: ["30 2 * * *"]',
    "schedules": 'write cron: ["30 2 * * *"]',
    "timezone": "write timeZone",
    "tz": "write timeZone",
    "suspended": "write suspend",
    "paused": "write suspend",
    "backofflimit": "write retry.maxAttempts, which counts the first attempt too: backoffLimit plus 1",
    "retries": "write retry.maxAttempts, which counts the first attempt too",
    "startingdeadline": "write startingDeadlineSeconds",
    "timeout": "write attemptDeadlineSeconds (one attempt) or activeDeadlineSeconds (all of them)",
    "jobtemplate": "write job.template",
    "interval": "write every.periodSeconds",
    "period": "write every.periodSeconds",
    "jitter": "write spreadSeconds",
    "ttlsecondsafterfinished": _HISTORY,
}

_JSON_TYPES = {bool: "boolean", str: "string", int: "integer", float: "number", dict: "object", list: "array"}


def shown(value: object) -> str:
    """``value`` as compact JSON, cut to 60 characters, on one line."""
    text = json.dumps(value, ensure_ascii=False, separators=(", ", ": "), default=str)
    # A lone surrogate cannot be printed on any terminal or stored anywhere; show its escape instead.
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"


def json_type(value: object) -> str:
    """The name that JSON Schema gives the type of ``value``."""
    return "null" if value is None else _JSON_TYPES.get(type(value), type(value).__name__)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that ``word`` was probably meant to be, or None; case does not count."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.75)
    return by_lower[close[0]] if close else None


def instead_of_unknown(name: str, siblings: Iterable[str], elsewhere: dict[str, str]) -> str:
    """What to write in place of the unknown field ``name``.

    ``siblings`` are the fields known at its place, ``elsewhere`` maps the names of fields to their full path.
    """
    siblings = list(siblings)
    lower = name.lower()
    if lower in _OTHER_WORDS:
        return _OTHER_WORDS[lower]
    if "history" in lower or "retention" in lower:
        return _HISTORY
    if name in elsewhere:
        return f"write {elsewhere[name]}"
    close = nearest(name, siblings)
    if close:
        return f"write {close}"
    return f"the fields known here are {', '.join(sorted(siblings))}" if siblings else "leave it out"
