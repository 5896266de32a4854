"""The default sandbox: envs as forked processes behind namespaces, or Landlock where those are refused."""

from agent_env.sandbox.process.sandbox import ProcessSandbox

__all__ = ["ProcessSandbox"]
