"""The sums of the bodies that the hub holds."""

from __future__ import annotations

from addons.proxy.http.request_bodies import MAX_BODY, MAX_COLLECTED, MAX_OF_ADDRESS, HeldBodies, Holder

POD = Holder(10268, "10.0.0.1")
KUBELET = Holder(10261, "127.0.0.1")


def filled(held: HeldBodies, holder: Holder) -> int:
    """How many of the largest bodies a holder may have."""
    count = 0
    while held.resize(holder, 0, MAX_BODY) is None:
        count += 1
    return count


def test_one_body_is_at_most_what_kube_apiserver_takes() -> None:
    held = HeldBodies()
    assert held.resize(POD, 0, MAX_BODY) is None
    fault = held.resize(POD, MAX_BODY, MAX_BODY + 1)
    assert fault is not None
    assert fault.code == 413
    assert held.size == MAX_BODY


def test_all_bodies_of_an_address_have_a_bound_and_the_client_may_come_again() -> None:
    held = HeldBodies()
    assert filled(held, POD) == MAX_OF_ADDRESS // MAX_BODY
    fault = held.resize(POD, 0, MAX_BODY)
    assert fault is not None
    assert (fault.code, fault.retry_after) == (429, 1)
    assert held.resize(POD, MAX_BODY, 0) is None, "a body that ends makes room"
    assert held.resize(POD, 0, MAX_BODY) is None


def test_pods_take_nothing_from_each_other_up_to_their_listeners_bound_and_never_from_kubelet() -> None:
    held = HeldBodies()
    pods = [POD._replace(address=f"10.0.0.{number}") for number in range(10)]
    assert sum(filled(held, each) for each in pods) == MAX_COLLECTED // MAX_BODY
    assert filled(held, KUBELET) == MAX_OF_ADDRESS // MAX_BODY


def test_whoever_holds_nothing_is_forgotten() -> None:
    held = HeldBodies()
    for number in range(1000):
        holder = POD._replace(address=f"10.0.{number // 250}.{number % 250}")
        assert held.resize(holder, 0, 1) is None
        assert held.resize(holder, 1, 0) is None
    assert (held.size, len(held._of_holders)) == (0, 0)
