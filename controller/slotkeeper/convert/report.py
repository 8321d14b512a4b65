"""The report of differences: as text for the person who signs it off, as JSON for whatever comes after.

Order and wording only; verdicts and notes are made elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from slotkeeper.convert.conversion import Conversion, Note, Verdict

#: From a conversion and one of its fields to the place in the file, such as ``cron.yaml:12``.
Where = Callable[[str], str]

_MOST_NAMED = 4


def report_text(conversions: Sequence[tuple[Where, Conversion]]) -> str:
    """Each object with its verdict and its notes, then what is true of many, then the numbers of each verdict."""
    return "".join(f"{line}\n" for line in _lines(conversions))


def report_json(conversions: Sequence[tuple[Where, Conversion]]) -> list[dict[str, object]]:
    """A list of objects with ``where``, ``kind``, ``namespace``, ``name``, ``verdict``, ``findings`` and ``notes``."""
    return [
        {
            "where": where(""),
            "kind": conversion.kind,
            "namespace": conversion.namespace,
            "name": conversion.name,
            "verdict": str(conversion.verdict),
            "findings": [
                {
                    "where": where(finding.field),
                    "field": finding.field,
                    "problem": finding.problem,
                    "instead": finding.instead,
                }
                for finding in conversion.findings
            ],
            "notes": [
                {"kind": str(note.kind), "where": where(note.field), "field": note.field, "text": note.text}
                for note in conversion.notes
            ],
        }
        for where, conversion in conversions
    ]


def _lines(conversions: Sequence[tuple[Where, Conversion]]) -> Iterator[str]:
    shared: dict[Note, list[str]] = {}
    several = sum(conversion.job_schedule is not None for _, conversion in conversions) > 1
    for where, conversion in conversions:
        if conversion.verdict is Verdict.IGNORED:
            yield f"{where('')}: {conversion.kind} {conversion.key}: ignored: it is no CronJob"
            continue
        yield f"{where('')}: {conversion.kind} {conversion.key}: {conversion.verdict}"
        for finding in conversion.findings:
            yield f"  {where(finding.field)}: {finding}"
        for note in conversion.notes:
            if note.shared and several:
                shared.setdefault(note, []).append(conversion.key)
            else:
                yield f"  {note.kind}: {note.field}: {note.text}"
    if shared:
        yield "Of several, or of all:"
    for note, keys in shared.items():
        yield f"  {note.kind}: {note.field}: {note.text} ({_named(keys)})"
    yield _summary([conversion for _, conversion in conversions])


def _named(keys: list[str]) -> str:
    told = ", ".join(keys[:_MOST_NAMED])
    return told if len(keys) <= _MOST_NAMED else f"{told} and {len(keys) - _MOST_NAMED} more"


def _summary(conversions: list[Conversion]) -> str:
    numbers = {verdict: sum(item.verdict is verdict for item in conversions) for verdict in Verdict}
    converted = numbers[Verdict.SAME] + numbers[Verdict.CHANGED]
    return (
        f"{converted} converted ({numbers[Verdict.SAME]} same, {numbers[Verdict.CHANGED]} changed), "
        f"{numbers[Verdict.REFUSED]} refused, {numbers[Verdict.IGNORED]} ignored"
    )
