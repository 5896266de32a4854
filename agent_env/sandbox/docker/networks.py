"""Networks for servers that must bind a port: one per episode, each with a subnet that we choose.

Docker's own pools hold about 30 networks; a subnet named in the request comes from no pool, so 32,768 fit in the
default range. A network is internal: no route leads out of it. This machine has an address in it (that is how the env
is reached), so the env could connect to what listens here on all addresses.
"""

from __future__ import annotations

import ipaddress
import itertools
import random
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from docker import APIClient

__all__ = ["DEFAULT_RANGE", "Subnets", "make_network"]

DEFAULT_RANGE = "10.200.0.0/14"
PREFIX = 29
"""Eight addresses: network, this machine, the env, broadcast and some to spare."""

TRIES = 50


class Subnets:
    """Hands out the subnets of a range in turn, from a random start, since other servers may use the same range."""

    def __init__(self, range: str = DEFAULT_RANGE) -> None:
        """Raises ValueError if it isn't an IPv4 network that holds a /29."""
        self.range = ipaddress.IPv4Network(range)
        if self.range.prefixlen > PREFIX:
            raise ValueError(f"the range {range} of Docker networks is too small: it must hold a /{PREFIX}")
        self._count: int = 2 ** (PREFIX - self.range.prefixlen)
        self._numbers = itertools.count(random.randrange(self._count))

    def next(self) -> ipaddress.IPv4Network:
        size: int = 2 ** (32 - PREFIX)
        start = self.range.network_address + (next(self._numbers) % self._count) * size
        return ipaddress.IPv4Network((start, PREFIX))


def make_network(api: APIClient, subnets: Subnets, name: str, labels: Mapping[str, str]) -> None:
    """Blocking. A subnet that is in use is passed over. Raises the SDK's errors."""
    import docker.errors
    from docker.types import IPAMConfig, IPAMPool

    for left in reversed(range(TRIES)):
        ipam = IPAMConfig(pool_configs=[IPAMPool(subnet=str(subnets.next()))])
        try:
            api.create_network(name, driver="bridge", ipam=ipam, internal=True, labels=dict(labels))
            return
        except docker.errors.APIError as error:
            if "overlaps" not in str(error.explanation) or not left:
                raise
