"""What ``--listen`` takes."""

from __future__ import annotations

import pytest

from slotkeeper.errors import InvalidField
from slotkeeper.metrics.address import EVERYWHERE, Address


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [(EVERYWHERE, "0.0.0.0", 8080), ("[::]:8080", "::", 8080), ("localhost:0", "localhost", 0)],
)
def test_an_address_and_a_port(text: str, host: str, port: int) -> None:
    address = Address.parse(text, "--listen")
    assert address == Address(host, port)
    assert str(address) == text


@pytest.mark.parametrize("text", ["", "off"])
def test_nothing_is_served(text: str) -> None:
    assert Address.parse(text, "--listen") is None


@pytest.mark.parametrize(
    "text", ["8080", ":8080", "0.0.0.0", "0.0.0.0:", "0.0.0.0:x", "0.0.0.0:65536", "::1:80", "h:-1"]
)
def test_what_is_neither_is_refused(text: str) -> None:
    with pytest.raises(InvalidField) as caught:
        Address.parse(text, "--here")
    assert str(caught.value) == f"--here: {text!r} is not ADDRESS:PORT; 0.0.0.0:8080, [::]:8080 or off"
