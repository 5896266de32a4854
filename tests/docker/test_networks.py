from __future__ import annotations

from typing import Any

import docker.errors
import pytest

from agent_env.sandbox.docker.networks import Subnets, make_network


class Api:
    """Refuses the first so many subnets."""

    def __init__(self, taken: int, why: str = "Pool overlaps with other one on this address space") -> None:
        self.taken = taken
        self.why = why
        self.asked: list[str] = []

    def create_network(self, name: str, *, ipam: Any, **options: Any) -> None:
        assert options["internal"] is True
        self.asked.append(ipam["Config"][0]["Subnet"])
        if len(self.asked) <= self.taken:
            raise docker.errors.APIError("refused", explanation=self.why)


def test_default_range_holds_tens_of_thousands() -> None:
    subnets = Subnets()
    seen = {subnets.next() for _ in range(32768)}
    assert len(seen) == 32768
    assert all(subnet.subnet_of(subnets.range) and subnet.prefixlen == 29 for subnet in list(seen)[:100])


def test_subnets_in_use_are_passed_over() -> None:
    api = Api(taken=3)
    make_network(api, Subnets("10.99.0.0/24"), "n", {"made": "here"})  # type: ignore[arg-type]
    assert len(set(api.asked)) == 4


def test_a_full_range_is_told() -> None:
    with pytest.raises(docker.errors.APIError):
        make_network(Api(taken=1000), Subnets("10.99.0.0/28"), "n", {})  # type: ignore[arg-type]


def test_another_refusal_is_told_at_once() -> None:
    api = Api(taken=1, why="permission denied")
    with pytest.raises(docker.errors.APIError):
        make_network(api, Subnets(), "n", {})  # type: ignore[arg-type]
    assert len(api.asked) == 1


@pytest.mark.parametrize("range", ["10.0.0.0/30", "10.0.0.1/24", "not a network"])
def test_a_range_that_can_not_do_is_refused(range: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Subnets(range)
