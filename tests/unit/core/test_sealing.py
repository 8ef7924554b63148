"""A sealed value opens in its own place only, and never unsealed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.core.kit import WRITE, row_of

from adapter.core.errors import StoreUnavailable
from adapter.core.keys import KeyRing
from adapter.core.sealing import Sealer
from adapter.testing import make_call, wired

RING = KeyRing.from_secret(bytes(range(32)))
SEALER = Sealer(keys=lambda: RING)
SEALED: Any = SEALER.seal({"result": "secret"}, "key", "thread")


def test_a_sealed_value_opens_in_its_place() -> None:
    assert SEALER.open(SEALED, "key", "thread") == {"result": "secret"}
    assert "secret" not in repr(SEALED)


def test_nothing_is_sealed_as_nothing() -> None:
    assert SEALER.seal(None, "key") is None
    assert SEALER.open(None, "key") is None


def altered(**change: Any) -> Any:
    return {"sealed": SEALED["sealed"] | change}


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (SEALED, ("key", "other")),
        (SEALED, ("key",)),
        (SEALED, ("keyt", "hread")),
        ({"result": "plain"}, ("key", "thread")),
        ("plain", ("key", "thread")),
        (altered(kid="other"), ("key", "thread")),
        (altered(kid="shared-seal"), ("key", "thread")),
        (altered(data="AAAA"), ("key", "thread")),
        (altered(data="!"), ("key", "thread")),
        (altered(nonce=""), ("key", "thread")),
    ],
)
def test_what_was_moved_altered_or_never_sealed_does_not_open(value: Any, place: Any) -> None:
    with pytest.raises(StoreUnavailable, match="does not open"):
        SEALER.open(value, *place)


def test_a_revoked_key_opens_nothing() -> None:
    gone = KeyRing(replace(key, revoked_at=1) for key in RING.keys)
    with pytest.raises(StoreUnavailable, match="revoked"):
        Sealer(keys=lambda: gone).open(SEALED, "key", "thread")


@pytest.mark.anyio
async def test_an_outcome_is_sealed_in_the_store() -> None:
    async with wired(WRITE) as kit:
        await kit.run(make_call("write", to="bob"), body=lambda _: "confidential")
        assert "confidential" not in repr(await row_of(kit))
        assert await kit.run(make_call("write", to="bob")) == "confidential"
