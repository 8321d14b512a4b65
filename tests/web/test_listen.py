"""Where the dashboard listens, and whose requests it answers: this machine's alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotkeeper.errors import InvalidField
from slotkeeper.web.listen import listen_address, names_loopback


@pytest.mark.parametrize(
    ("text", "host", "port", "url"),
    [
        ("127.0.0.1:8081", "127.0.0.1", 8081, "http://127.0.0.1:8081/"),
        ("127.8.0.1:0", "127.8.0.1", 0, "http://127.8.0.1:0/"),
        ("[::1]:80", "::1", 80, "http://[::1]:80/"),
        ("localhost:9", "127.0.0.1", 9, "http://127.0.0.1:9/"),
    ],
)
def test_loopback_addresses(text: str, host: str, port: int, url: str) -> None:
    address = listen_address(text)
    assert address == (host, port)
    assert address is not None
    assert address.url() == url


def test_off() -> None:
    assert listen_address("off") is None


@pytest.mark.parametrize(
    "text", ["0.0.0.0:8081", "10.0.0.7:8081", "[::]:8081", "example.org:8081", ":8081", "[fe80::1]:1"]
)
def test_any_other_address_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(InvalidField) as caught:
        listen_address(text)
    assert str(caught.value).startswith(f"--dashboard-listen: {text!r} is not a loopback address")
    assert "write 127.0.0.1:" in str(caught.value)


@pytest.mark.parametrize(
    "text", ["", "8081", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", "::1:80", "on"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidField, match=r"^--dashboard-listen: .* is not ADDRESS:PORT; write "):
        listen_address(text)


@pytest.mark.parametrize(
    "host", ["localhost", "LocalHost:9000", "127.0.0.1", "127.0.0.1:1", "127.1.2.3:80", "[::1]", "[::1]:8081"]
)
def test_names_of_this_machine(host: str) -> None:
    assert names_loopback(host)


@pytest.mark.parametrize(
    "host",
    [
        "", "evil.example", "evil.example:8081", "localhost.evil.example", "127.0.0.1.evil.example",
        "127.0.0.1@evil.example",
        "localhost:8081@evil.example", "[::1].evil.example", "10.0.0.1", "0.0.0.0", "[::]", "2130706433", "localhost:x",
    ],
)  # fmt: skip
def test_other_names(host: str) -> None:
    assert not names_loopback(host)


@given(st.text(max_size=30))
def test_a_name_never_raises(host: str) -> None:
    assert names_loopback(host) in (True, False)
