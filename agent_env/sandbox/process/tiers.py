"""Which isolation this machine gives a process sandbox, and what each tier does and doesn't do."""

from __future__ import annotations

from agent_env.sandbox.interface import SandboxUnavailable, Tier

__all__ = ["TIERS", "choose_tier"]

TIERS = {
    "namespaces": Tier("namespaces", ("private pid, mount, net, ipc, uts and user namespaces",), ()),
    "landlock": Tier("landlock", (), ()),
    "unconfined": Tier("unconfined", (), ()),
}


async def choose_tier(asked: str | None) -> Tier:
    if asked in (None, "auto"):
        return TIERS["namespaces"]
    try:
        return TIERS[str(asked)]
    except KeyError:
        raise SandboxUnavailable(f"tier {asked!r}") from None
