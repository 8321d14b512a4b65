"""Files read as kubectl reads them. data/kubectl_yaml.json holds what sigs.k8s.io/yaml 1.6.0 made of each text."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from slotkeeper.spec import NothingThere, UnreadableManifest, manifest_files, read_manifests
from slotkeeper.spec.yaml_scalars import json_integer

DATA = Path(__file__).parent / "data"
KUBECTL: list[dict[str, Any]] = json.loads((DATA / "kubectl_yaml.json").read_text())
HEAD = "apiVersion: slotkeeper.dev/v1beta1\nkind: JobSchedule\nmetadata: {name: a}\n"


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def write_file(text: str | bytes, name: str = "file.yaml") -> Path:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write_file


def _payload(text: str) -> str:
    indented = text.replace("\n", "\n    ")
    return f"{HEAD}spec:\n  payload:\n    {indented}\n"


def _as_the_server_reads(text: str) -> object:
    """kubectl prints integers up to 2**64; the API server reads those beyond 2**63 as floats."""
    return json.loads(text, parse_int=lambda digits: json_integer(int(digits)))


INDENTABLE = [row for row in KUBECTL if row["yaml"].isprintable() or "\n" in row["yaml"]]
MAPPINGS = [
    row
    for row in INDENTABLE
    if not row["yaml"].startswith(("%", "- ", "#", "5", "\t")) and row["yaml"] and "\r" not in row["yaml"]
]


@pytest.mark.parametrize("row", [row for row in MAPPINGS if "json" in row], ids=lambda row: row["yaml"])
def test_values_are_what_kubectl_makes_of_them(row: dict[str, Any], write: Any) -> None:
    (manifest,) = read_manifests(write(_payload(row["yaml"])))
    value = manifest.object["spec"]["payload"]
    expected = _as_the_server_reads(row["json"])
    assert value == expected
    # 1 == True == 1.0 in Python, and not in JSON.
    assert json.dumps(value, sort_keys=True) == json.dumps(expected, sort_keys=True)


@pytest.mark.parametrize("row", [row for row in MAPPINGS if "refused" in row], ids=lambda row: row["yaml"])
def test_what_kubectl_refuses_is_refused(row: dict[str, Any], write: Any) -> None:
    with pytest.raises(UnreadableManifest) as caught:
        read_manifests(write(_payload(row["yaml"])))
    assert caught.value.line >= 5


def test_a_cronjob_full_of_traps() -> None:
    (manifest,) = read_manifests(DATA / "cronjob_yaml_traps.yaml")
    assert manifest.ignored
    assert manifest.kind == "CronJob"
    pod = manifest.object["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert [volume["configMap"]["defaultMode"] for volume in pod["volumes"]] == [493, 365]
    assert [entry["value"] for entry in pod["containers"][0]["env"]] == ["12:30", "2026-01-01"]
    assert manifest.object["spec"]["schedule"] == "30 1 * * *"
    assert manifest.object["spec"]["suspend"] is False


def test_several_documents_and_lines(write: Any) -> None:
    text = f"# a comment\n---\n{HEAD}spec:\n  cron:\n  - '@daily'\n  - '@hourly'\n---\n---\n# nothing\n---\n{HEAD}"
    first, second = read_manifests(write(text))
    assert (first.line, second.line) == (3, 14)
    assert first.where("spec.cron[1]").endswith("file.yaml:9")
    assert first.where("spec.cron[7]").endswith("file.yaml:7")
    assert first.where("spec.task").endswith("file.yaml:6")
    assert first.where().endswith("file.yaml:3")


def test_lists_are_taken_apart(write: Any) -> None:
    text = (
        "apiVersion: v1\nkind: List\nitems:\n"
        "- apiVersion: slotkeeper.dev/v1beta1\n  kind: JobSchedule\n  metadata: {name: a}\n  spec:\n    queue: q\n"
        "- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: b, namespace: c}\n"
    )
    ours, other = read_manifests(write(text), namespace="billing")
    assert (ours.key, ours.ignored, ours.line) == (("billing", "a"), False, 4)
    assert ours.where("spec.queue").endswith(":8")
    assert (other.key, other.ignored, other.kind) == (("c", "b"), True, "ConfigMap")


def test_an_empty_list(write: Any) -> None:
    assert read_manifests(write("apiVersion: v1\nkind: List\nitems: []\n")) == []


def test_the_namespace_is_filled_in(write: Any) -> None:
    (manifest,) = read_manifests(write(HEAD))
    assert manifest.object["metadata"] == {"name": "a", "namespace": "default"}


def test_a_misspelt_kind_of_our_group_is_not_ignored(write: Any) -> None:
    (manifest,) = read_manifests(write("apiVersion: slotkeeper.dev/v1\nkind: Jobschedule\n"))
    assert not manifest.ignored


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        (f"{HEAD}spec:\n  queue: a\n  queue: b\n", 6, 'the key "queue" is written twice'),
        ("a: 1\n", 1, "apiVersion is missing"),
        ("apiVersion: v1\n", 1, "kind is missing"),
        ("apiVersion: v1\nkind: 5\n", 1, "kind is missing"),
        ("\n- 1\n", 2, "is not an object"),
        (f"{HEAD}---\ntext\n", 5, "is not an object"),
        (f"{HEAD}spec:\n  cron: [*/5 * * * *]\n", 5, "is not YAML"),
        (f"{HEAD}spec: {{a: .nan}}\n", 4, "not a number"),
        (f"{HEAD}spec: &a [*a]\n", 4, "contains itself"),
        (f"{HEAD}spec: {{1.5: a}}\n", 4, "a key must be text"),
        ('{"apiVersion": "v1", "kind": "A", "a": 1, "a": 2}', 1, 'the key "a" is written twice'),
        ('\n{"apiVersion": "v1", "kind": "A", "a": NaN}', 2, "NaN is not a number"),
        ('{"apiVersion": "v1", "kind": "A", "a": 1e999}', 1, "too large"),
        (b"\xff\xfe", 0, "is not UTF-8"),
        ("a: " + "[" * 100_000, 1, "is not YAML"),
        ('{"a":' + "[" * 100_000, 0, "is not YAML"),
    ],
)
def test_errors_name_the_line(text: str | bytes, line: int, problem: str, write: Any) -> None:
    path = write(text)
    with pytest.raises(UnreadableManifest) as caught:
        read_manifests(path)
    assert (caught.value.file, caught.value.line) == (path, line)
    assert problem in caught.value.problem
    assert str(caught.value).startswith(str(path))


def test_many_values_are_fine_as_long_as_each_is_written(write: Any) -> None:
    """What kubectl prints of a large cluster, or a large ConfigMap."""
    file = write(f"{{apiVersion: v1, kind: ConfigMap, metadata: {{name: a}}, data: [{'1,' * 100_001}]}}")
    (manifest,) = read_manifests(file)
    assert len(manifest.object["data"]) == 100_001


def test_aliases_of_aliases_end(write: Any) -> None:
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 8)}]" for i in range(1, 9)]
    with pytest.raises(UnreadableManifest, match="aliases included"):
        read_manifests(write(HEAD + "\n".join(lines)))


def test_json(write: Any) -> None:
    one = '{"apiVersion": "v1", "kind": "A", "metadata": {"name": "\\ud83d\\ude00\\/"}, "n": [1.0, 1e3, 1.5, 1e21]}'
    first, second = read_manifests(write(f"{one}\n{one}\n", "file.json"))
    assert first.object == second.object
    assert first.object["metadata"]["name"] == "😀/"
    assert json.dumps(first.object["n"]) == "[1, 1000, 1.5, 1e+21]"
    assert second.line == 2


def test_integers_beyond_64_bits_lose_digits_in_json_too(write: Any) -> None:
    text = '{"apiVersion": "v1", "kind": "A", "n": [9223372036854775807, 12345678901234567890]}'
    (manifest,) = read_manifests(write(text, "file.json"))
    assert manifest.object["n"] == [9223372036854775807, 12345678901234567000]


def test_yaml_in_braces(write: Any) -> None:
    (manifest,) = read_manifests(write("{apiVersion: v1, kind: A, a: yes}"))
    assert manifest.object["a"] is True


def test_files_of_a_folder(tmp_path: Path) -> None:
    for name in ("b.yml", "a.yaml", "c.json", "d.txt", "e.yaml.bak"):
        (tmp_path / name).write_text(HEAD if not name.endswith("json") else '{"apiVersion": "v1", "kind": "A"}')
    (tmp_path / "f.yaml").mkdir()
    assert [path.name for path in manifest_files(tmp_path)] == ["a.yaml", "b.yml", "c.json"]
    assert [manifest.file.name for manifest in read_manifests(tmp_path)] == ["a.yaml", "b.yml", "c.json"]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UnreadableManifest, match="no such file"):
        read_manifests(tmp_path / "nothing.yaml")


def test_a_folder_that_may_not_be_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "closed").mkdir(mode=0)
    tmp_path.chmod(0o755)
    monkeypatch.chdir(tmp_path)  # for the folders around it may be closed, too
    with _nobody(), pytest.raises(UnreadableManifest, match="closed: cannot be read: Permission denied") as caught:
        manifest_files(Path("closed"))
    assert not isinstance(caught.value, NothingThere)
    with _nobody(), pytest.raises(UnreadableManifest, match=r"a\.yaml: cannot be read: Permission denied"):
        manifest_files(Path("closed/a.yaml"))


@contextmanager
def _nobody() -> Iterator[None]:
    """Root may list every folder."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


def test_a_name_that_no_file_can_have() -> None:
    with pytest.raises(UnreadableManifest, match="File name too long"):
        manifest_files(Path("a" * 300))
