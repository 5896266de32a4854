"""Envs in Docker containers, through the `docker` SDK (API 1.41 and later).

Podman's Docker API works too (4.3 was tried by hand), but for servers that bind a port in an image without Python: its
internal networks don't reach this machine. And it doesn't say that a container ran out of memory.

`sandbox` is the entry; `launch` says how a server inside is reached, `options` what a container may do, `container`
and `removal` are its life and end, `janitor` and `leftovers` are for when this process is gone.
"""

from agent_env.sandbox.docker.sandbox import DockerSandbox

__all__ = ["DockerSandbox"]
