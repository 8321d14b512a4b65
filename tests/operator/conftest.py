"""Fixtures of this room: a real API server per session, and databases."""

from __future__ import annotations

import itertools
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

# The folder's name is that of a module of the standard library, so its modules are found by their own names.
sys.path.insert(0, str(Path(__file__).parent))

from api_server import ApiServer, install_crd, own_api_server

from slotkeeper.operator import Operator

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def api_server() -> Iterator[ApiServer]:
    """An API server that knows JobSchedules: SLOTKEEPER_TEST_KUBECONFIG's, or our own; never the user's."""
    given = os.environ.get("SLOTKEEPER_TEST_KUBECONFIG")
    if given:
        found = shutil.which("kubectl")
        assert found is not None, "SLOTKEEPER_TEST_KUBECONFIG needs kubectl on PATH"
        server = ApiServer(Path(given), Path(found), None)
        install_crd(server)
        yield server
        return
    with own_api_server() as server:
        yield server


@pytest.fixture
def new_namespace(api_server: ApiServer) -> Callable[[], str]:
    """Makes a namespace that no other test has used."""

    def make() -> str:
        name = f"test-{os.getpid()}-{next(_numbers)}"
        api_server.kubectl("create", "namespace", name)
        return name

    return make


@pytest.fixture
def namespace(new_namespace: Callable[[], str]) -> str:
    return new_namespace()


@pytest.fixture
def new_operator(api_server: ApiServer, dsn: str) -> Iterator[Callable[..., Operator]]:
    """Makes operators on this test's database, stopped at its end. Watch few namespaces: others are at work."""
    made: list[Operator] = []

    def make(**options: Any) -> Operator:
        operator = Operator(dsn, **{"kubeconfig": api_server.kubeconfig, **options})
        made.append(operator)
        return operator

    yield make
    for operator in made:
        operator.stop()


@pytest.fixture
def operator(new_operator: Callable[..., Operator], namespace: str) -> Operator:
    """A running operator of ``namespace``."""
    operator = new_operator(namespaces=[namespace])
    operator.start()
    return operator
