"""Envs in Docker containers, through the `docker` SDK (API 1.41 and later; Podman's Docker API works too).

`sandbox` is the entry; `launch` says how a server inside is reached, `options` what a container may do, `container`
and `removal` are its life and end, `janitor` and `leftovers` are for when this process is gone.
"""

from agent_env.sandbox.docker.sandbox import DockerSandbox

__all__ = ["DockerSandbox"]
