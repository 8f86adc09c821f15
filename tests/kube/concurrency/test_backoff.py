"""Delays double up to a limit, have jitter, and are reset after a time without failures."""

from kube.concurrency.backoff import FORGET_AFTER, Backoff


def test_delays_double_up_to_the_maximum() -> None:
    backoff = Backoff(first=1.0, last=5.0, clock=lambda: 0.0, jitter=lambda: 0.0)
    assert [backoff.next() for _ in range(5)] == [1.0, 2.0, 4.0, 5.0, 5.0]


def test_jitter_extends_a_delay_by_up_to_its_own_length() -> None:
    backoff = Backoff(first=1.0, last=5.0, clock=lambda: 0.0, jitter=lambda: 0.5)
    assert backoff.next() == 1.5


def test_a_delay_is_at_least_the_retry_after() -> None:
    backoff = Backoff(first=1.0, last=5.0, clock=lambda: 0.0, jitter=lambda: 0.5)
    assert [backoff.next(30), backoff.next(1), backoff.next()] == [45.0, 3.0, 6.0]


def test_a_long_time_without_failures_resets_the_backoff() -> None:
    now = 0.0
    backoff = Backoff(first=1.0, last=5.0, clock=lambda: now, jitter=lambda: 0.0)
    assert [backoff.next(), backoff.next()] == [1.0, 2.0]
    now += FORGET_AFTER + 1
    assert backoff.next() == 1.0


def test_a_reset_backoff_starts_with_the_first_delay() -> None:
    backoff = Backoff(first=1.0, last=5.0, clock=lambda: 0.0, jitter=lambda: 0.0)
    assert [backoff.next(), backoff.next()] == [1.0, 2.0]
    backoff.forget()
    assert [backoff.next(), backoff.next()] == [1.0, 2.0]
