"""The sum of the bodies that the hub holds."""

from __future__ import annotations

from addons.proxy.http.request_bodies import MAX_BODY, MAX_COLLECTED, HeldBodies


def test_one_body_is_at_most_what_kube_apiserver_takes() -> None:
    held = HeldBodies()
    assert held.resize(0, MAX_BODY) is None
    fault = held.resize(MAX_BODY, MAX_BODY + 1)
    assert fault is not None
    assert fault.code == 413
    assert held.size == MAX_BODY


def test_all_bodies_together_have_a_bound_and_the_client_may_come_again() -> None:
    held = HeldBodies()
    count = MAX_COLLECTED // MAX_BODY
    assert all(held.resize(0, MAX_BODY) is None for _ in range(count))
    fault = held.resize(0, MAX_BODY)
    assert fault is not None
    assert (fault.code, fault.retry_after) == (429, 1)
    assert held.resize(MAX_BODY, 0) is None, "a body that ends makes room"
    assert held.resize(0, MAX_BODY) is None
