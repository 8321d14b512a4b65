"""From the chart's values to a login at a real Postgres: which Secret is read by whom, and any password as it is."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

import scenario
from helm_chart import Object, pods, render
from processes import eventually
from slotkeeper.cli.embedded_postgres import EmbeddedPostgres
from slotkeeper.errors import InvalidField, SlotkeeperError
from slotkeeper.store.connection import Session, conninfo, wrapped_errors

POOLS = {"pools": [{"name": "a"}, {"name": "b", "autoscaling": {"enabled": True}}]}
PROVIDER = {"enabled": True, "requestheaderClientCa": "-----BEGIN CERTIFICATE-----"}
#: The first five are those of the case.
PASSWORDS = [
    "p@ss", "a:b", "a/b", "a%b", "pa ss", "a#b?c&d=e", "'", '"', "\\", "it's \"so\"", "$(HOME) $$ ${HOME}",
    "{{ .Values.x }}", "%40", " both sides ", "0123", "null", "true", "ünï€", "-", "a,b;c", "`id`", "x" * 200,
]  # fmt: skip


def variables(pod: Object) -> dict[str, Any]:
    return {variable["name"]: variable for container in pod["containers"] for variable in container.get("env", [])}


@pytest.mark.parametrize("mode", ["hook", "job"])
def test_c136_every_pod_reads_the_password_from_the_secret_that_is_there(mode: str) -> None:
    parts = {
        "host": "db.example",
        "name": "slots",
        "user": "app",
        "existingSecret": "pg-creds",
        "passwordKey": "pgpass",
    }
    objects = render(
        {
            "database": parts, "migrations": {"mode": mode}, "workers": POOLS,
            "externalMetrics": {**PROVIDER, "tlsSecret": "tls", "caBundle": "-----BEGIN CERTIFICATE-----"},
        }
    )  # fmt: skip
    assert [obj["metadata"]["name"] for obj in objects if obj["kind"] == "Secret"] == []
    readers = {name: variables(pod) for name, pod in pods(objects) if not name.startswith("Pod/")}
    assert len(readers) == 5
    for name, found in readers.items():
        assert found["PGPASSWORD"]["valueFrom"] == {"secretKeyRef": {"name": "pg-creds", "key": "pgpass"}}, name
        dsn = found["SLOTKEEPER_DSN"]["value"]
        assert dsn.split() == ["host='db.example'", "port=5432", "dbname='slots'", "user='app'"], name


def test_c136_another_login_has_its_own_secret_and_key() -> None:
    database = {"host": "h", "existingSecret": "pg-creds", "passwordKey": "pgpass"}
    own = {"user": "other", "existingSecret": "other-creds", "passwordKey": "word"}
    objects = render({"database": database, "migrations": own, "workers": {"pools": [{"name": "a", "database": own}]}})
    read = {
        name: variables(pod)["PGPASSWORD"]["valueFrom"]["secretKeyRef"]
        for name, pod in pods(objects)
        if not name.startswith("Pod/")
    }
    others = {"name": "other-creds", "key": "word"}
    assert read == {
        "Deployment/slotkeeper-controller": {"name": "pg-creds", "key": "pgpass"},
        "Deployment/slotkeeper-worker-a": others, "Job/slotkeeper-migrate": others,
    }  # fmt: skip


@pytest.mark.parametrize("mode", ["hook", "job"])
@pytest.mark.parametrize("given", [{"host": "h", "password": "p"}, {"dsn": "host=h password=p"}])
def test_c136_a_secret_of_the_charts_own_is_there_before_whoever_reads_it(given: Object, mode: str) -> None:
    """Helm installs hooks by weight and before everything else, and an ordinary Secret before what has pods."""
    objects = render({"database": given, "migrations": {"mode": mode}, "workers": POOLS})
    secrets = {obj["metadata"]["name"]: obj for obj in objects if obj["kind"] == "Secret"}
    for obj in objects:
        if obj["kind"] not in ("Deployment", "Job"):
            continue
        (pod,) = [pod for name, pod in pods([obj])]
        named = {
            variable["valueFrom"]["secretKeyRef"]["name"]
            for variable in variables(pod).values()
            if "secretKeyRef" in variable.get("valueFrom", {})
        }
        assert named
        for name in named:
            hook = "helm.sh/hook"
            of_reader, of_secret = (each["metadata"].get("annotations", {}) for each in (obj, secrets[name]))
            assert of_reader.get(hook) == of_secret.get(hook), (
                "hooks are gone before the rest, the rest is not there before"
            )
            if hook in of_reader:
                assert int(of_secret["helm.sh/hook-weight"]) < int(of_reader["helm.sh/hook-weight"])


@pytest.fixture
def login(postgres: EmbeddedPostgres) -> Iterator[str]:
    """A login that must show its password."""
    name = f"strict_{uuid.uuid4().hex[:8]}"
    rules = postgres.folder / "data" / "pg_hba.conf"
    before = rules.read_text()
    with scenario.connect(postgres.dsn) as connection:
        connection.execute(sql.SQL("create role {} login").format(sql.Identifier(name)))
        rules.write_text(f"local all {name} scram-sha-256\n{before}")
        connection.execute("select pg_reload_conf()")

        def asked_for_it() -> bool:
            with pytest.MonkeyPatch.context() as patch:
                patch.delenv("PGPASSWORD", raising=False)
                try:
                    psycopg.connect(make_conninfo(postgres.dsn, user=name)).close()
                except psycopg.OperationalError as error:
                    return "password" in str(error)
                return False

        eventually(asked_for_it, "the server asks for a password")
        yield name
        rules.write_text(before)
        connection.execute("select pg_reload_conf()")
        connection.execute(sql.SQL("drop role {}").format(sql.Identifier(name)))


def test_c137_any_password_logs_in_from_its_secret(
    postgres: EmbeddedPostgres, login: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(postgres.folder / "socket")
    with scenario.connect(postgres.dsn) as connection:
        for password in PASSWORDS:
            connection.execute(
                sql.SQL("alter role {} password {}").format(sql.Identifier(login), sql.Literal(password))
            )
            database = {"host": folder, "name": "postgres", "user": login, "password": password}
            objects = render({"database": database, "workers": POOLS})
            secrets = {obj["metadata"]["name"]: obj["stringData"] for obj in objects if obj["kind"] == "Secret"}
            for name, pod in pods(objects):
                if name.startswith("Pod/"):
                    continue
                found = variables(pod)
                key = found["PGPASSWORD"]["valueFrom"]["secretKeyRef"]
                monkeypatch.setitem(os.environ, "PGPASSWORD", secrets[key["name"]][key["key"]])
                with psycopg.connect(conninfo(found["SLOTKEEPER_DSN"]["value"], "test")) as opened:
                    assert opened.info.user == login, (name, password)
                assert password not in str({**pod, "containers": [], "volumes": []}) or len(password) < 5


@pytest.mark.parametrize("password", ["kq@zz", "kq/zz", "kq%zz", "kq zz", "kq@zz/xy", "123/456", 'kq"zz%xy'])
@pytest.mark.parametrize("form", ["postgresql://app:{}@db.example/slots", "host=db.example password='{}"])
def test_c137_a_password_that_breaks_a_dsn_is_told_without_it_and_sent_nowhere(form: str, password: str) -> None:
    with pytest.raises(InvalidField) as caught:
        Session(form.format(password), "test")
    assert caught.value.field == "--dsn"
    assert "percent-encoded" in str(caught.value)
    said = f"{caught.value} {caught.value.__cause__}"
    for part in (password, *password.split("@"), *password.split("/"), *password.split()):
        assert len(part) < 2 or part not in said.replace(caught.value.instead, "")


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://app:p%40ss@db.example/slots", "postgresql://app@db.example/slots?sslrootcert=/a@b",
        "postgresql://app@db.example?sslrootcert=/a@b", "postgresql://db.example?sslcert=b",
        "postgresql://db.example/slots", "postgresql:///slots?host=/run/x@y", "postgresql://app:a?b@db.example/slots",
        "host=db.example password='p@ss w/d'", "postgres://app@[::1]:5433/slots", "postgresql://a@h1,h2:5433/slots",
    ],
)  # fmt: skip
def test_a_dsn_that_is_none_of_these_is_taken(dsn: str) -> None:
    assert "slotkeeper test" in conninfo(dsn, "test")


def test_c137_a_wrong_password_is_in_no_error(postgres: EmbeddedPostgres, login: str) -> None:
    dsn = make_conninfo(postgres.dsn, user=login, password="not-the-word")
    with pytest.raises(SlotkeeperError) as caught, wrapped_errors():
        psycopg.connect(conninfo(dsn, "test"))
    assert login in str(caught.value)
    assert "not-the-word" not in f"{caught.value} {caught.value.__cause__}"
