"""Asks a dashboard over HTTP as a browser would; for the tests of the dashboard."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from typing import Any


@dataclass
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


@dataclass
class Browser:
    """Asks one dashboard; each question on a connection of its own."""

    address: str

    def get(self, path: str, *, host: str | None = None, method: str = "GET") -> Answer:
        connection = http.client.HTTPConnection(self.address, timeout=30)
        try:
            connection.putrequest(method, path, skip_host=True)
            connection.putheader("Host", self.address if host is None else host)
            connection.endheaders()
            answer = connection.getresponse()
            return Answer(answer.status, dict(answer.getheaders()), answer.read().decode())
        finally:
            connection.close()

    def api(self, path: str) -> Any:
        answer = self.get(f"/api/v1/{path}")
        assert answer.status == 200, answer.text
        return answer.json
