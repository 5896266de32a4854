"""Where envs and verifiers run, isolated from the host and from each other."""

from agent_env.sandbox.interface import (
    DeployFailed,
    EnvInstance,
    EnvLost,
    Limits,
    Sandbox,
    SandboxError,
    SandboxUnavailable,
    Tier,
    Verification,
    VerifierFailed,
)

__all__ = [
    "DeployFailed",
    "EnvInstance",
    "EnvLost",
    "Limits",
    "Sandbox",
    "SandboxError",
    "SandboxUnavailable",
    "Tier",
    "Verification",
    "VerifierFailed",
]
