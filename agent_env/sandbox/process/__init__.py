"""The default sandbox: envs as forked processes behind namespaces, or Landlock where those are refused."""

from agent_env.sandbox.process.sandbox import ProcessSandbox
from agent_env.sandbox.process.tiers import probe_tier

__all__ = ["ProcessSandbox", "probe_tier"]
