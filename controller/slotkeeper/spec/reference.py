"""Writes docs/jobschedule.md from the CRD: ``python -m slotkeeper.spec.reference > docs/jobschedule.md``.

The CRD is the source; a test holds the page equal to it. Nothing about a field is written here.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from slotkeeper.spec.schema import custom_resource_definition, object_schema, properties, walk

_HEAD = """\
<!-- Written by `python -m slotkeeper.spec.reference > docs/jobschedule.md` from crds/jobschedules.yaml. -->

# JobSchedule: every field

{about}

The smallest useful object:

```yaml
apiVersion: {api_version}
kind: {kind}
metadata: {{name: nightly-report, namespace: billing}}
spec:
  cron: ["30 2 * * *"]
  timeZone: Europe/Berlin
  task: billing.report
```

Everything else has a default, which `kubectl get -o yaml` shows: once on the nights the clock changes, one
catch-up run after an outage, no overlap, six attempts, nothing fired by an edit, a resume or a re-creation.

Times are RFC 3339; durations are whole numbers with the unit in the name. `kubectl explain {plural}.spec`
shows the same texts. Group `{group}`, plural `{plural}`, short name `{short}`, category `{category}`;
field selectors: {selectable}.
"""


def reference() -> str:
    """The whole page, in Markdown."""
    definition: Any = custom_resource_definition()
    spec, names = definition["spec"], definition["spec"]["names"]
    (version,) = spec["versions"]
    head = _HEAD.format(
        about=object_schema()["description"],
        api_version=f"{spec['group']}/{version['name']}",
        group=spec["group"],
        kind=names["kind"],
        plural=names["plural"],
        short=", ".join(names["shortNames"]),
        category=", ".join(names["categories"]),
        selectable=", ".join(f"`{field['jsonPath'].removeprefix('.')}`" for field in version["selectableFields"]),
    )
    parts = [head]
    for part in ("spec", "status"):
        schema = properties(object_schema())[part]
        parts += [f"\n## {part}\n\n{_prose(schema)}\n", *_section(part, schema)]
    parts += ["\n## Columns of `kubectl get`\n\n", *_columns(version["additionalPrinterColumns"])]
    return "".join(parts)


def _section(path: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield from _rules(schema)
    yield "\n| field | type | default | bounds | meaning |\n| --- | --- | --- | --- | --- |\n"
    for field, child in walk(schema, path):
        cells = (f"`{field}`", _type(child), _default(child), _bounds(child), _cell(child))
        yield "| " + " | ".join(cells) + " |\n"


def _rules(schema: Mapping[str, Any]) -> Iterator[str]:
    rules = schema.get("x-kubernetes-validations", ())
    if rules:
        yield "\nRefused at admission unless:\n\n"
    for rule in rules:
        yield f"- {rule['message']}\n"


def _prose(schema: Mapping[str, Any]) -> str:
    return re.sub(r"\n(?=- )", "\n\n", str(schema["description"]), count=1).replace("\nEverything", "\n\nEverything")


def _cell(schema: Mapping[str, Any]) -> str:
    text = str(schema["description"]).replace("|", "\\|").replace("*", "\\*").replace("\n", "<br>")
    rules = "".join(f"<br>Refused otherwise: {rule['message']}." for rule in schema.get("x-kubernetes-validations", ()))
    return text + rules.replace("*", "\\*")


def _type(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return ", ".join(f"`{word}`" for word in schema["enum"])
    if schema["type"] == "array":
        return f"list of {_type(schema['items'])}"
    if schema.get("format") == "date-time":
        return "time"
    return str(schema.get("format", schema["type"]))


def _default(schema: Mapping[str, Any]) -> str:
    return f"`{json.dumps(schema['default'], ensure_ascii=False)}`" if "default" in schema else "–"


def _bounds(schema: Mapping[str, Any]) -> str:
    for low, high, unit in (
        ("minimum", "maximum", ""),
        ("minLength", "maxLength", " characters"),
        ("minItems", "maxItems", " items"),
    ):
        if low in schema and high in schema:
            return f"{schema[low]} … {schema[high]}{unit}"
        if low in schema:
            return f"≥ {schema[low]}{unit}"
        if high in schema:
            return f"≤ {schema[high]}{unit}"
    return "–"


def _columns(columns: list[Mapping[str, Any]]) -> Iterator[str]:
    yield "| column | shown by | from | meaning |\n| --- | --- | --- | --- |\n"
    for column in columns:
        shown_by = "`-o wide`" if column.get("priority") else "always"
        yield (
            f"| {column['name'].upper()} | {shown_by} | `{column['jsonPath'].removeprefix('.')}` "
            f"| {column['description']} |\n"
        )


if __name__ == "__main__":
    sys.stdout.write(reference())
