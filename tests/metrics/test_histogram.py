"""The histogram that takes batches counts as one that takes values one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slotkeeper.histogram import Histogram

BOUNDS = (0.01, 0.1, 1, 10)
SECONDS = st.one_of(st.floats(0, 20), st.sampled_from(BOUNDS))


@given(st.lists(st.lists(SECONDS, max_size=20), max_size=5))
def test_every_value_is_counted_in_each_bucket_that_holds_it(batches: list[list[float]]) -> None:
    histogram = Histogram(BOUNDS)
    for batch in batches:
        histogram.observe(list(batch))
    values = [value for batch in batches for value in batch]
    expected = [sum(value <= bound for value in values) for bound in BOUNDS]
    assert histogram.cumulative() == (expected, len(values))
    assert abs(histogram.sum - sum(values)) < 1e-6
