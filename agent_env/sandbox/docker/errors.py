"""What went wrong with the Docker daemon, in words that say what to do."""

from __future__ import annotations

from typing import Any, Literal

from agent_env.sandbox.interface import SandboxError

__all__ = ["Cause", "EngineError", "engine_error", "not_found", "says_disk_full"]

Cause = Literal["daemon", "timeout", "disk_full", "docker_networks", "not_found", "refused"]


class EngineError(SandboxError):
    """The Docker daemon didn't do what it was asked."""

    def __init__(self, message: str, cause: Cause, *, ambiguous: bool = False) -> None:
        super().__init__(message)
        self.cause = cause
        self.disk_full = cause == "disk_full"
        self.ambiguous = ambiguous
        """The daemon may have done it nevertheless, or may still do it."""


def not_found(error: Exception) -> bool:
    return isinstance(error, EngineError) and error.cause == "not_found"


def engine_error(error: Exception, doing: str, address: str, timeout: float) -> EngineError:
    """The same error, typed. `doing` completes "the Docker daemon ... could not ..."."""
    import docker.errors
    import requests.exceptions

    if isinstance(error, docker.errors.APIError):
        return _refused(error, doing)
    if isinstance(error, requests.exceptions.ReadTimeout) or _is_timeout(error):
        return EngineError(
            f"the Docker daemon at {address} did not answer within {timeout:g} s (asked to {doing})",
            "timeout",
            ambiguous=True,
        )
    text = _innermost(error)
    if "Permission denied" in text:
        hint = "this user may not use it: add the user to the group `docker`, or use rootless Docker"
    elif "No such file" in text or "refused" in text:
        hint = "start it, or point DOCKER_HOST to one"
    else:
        hint = "is it restarting? Its log says more"
    # A connection that never came about did nothing; one that broke may have.
    ambiguous = not ("No such file" in text or "refused" in text or "Permission denied" in text)
    return EngineError(
        f"no Docker daemon answers at {address} (asked to {doing}): {text}; {hint}", "daemon", ambiguous=ambiguous
    )


def says_disk_full(text: str) -> bool:
    return any(words in text for words in ("no space left on device", "ENOSPC", "disk quota exceeded"))


def _refused(error: Any, doing: str) -> EngineError:
    text = str(error.explanation or error).strip()
    if isinstance(text, str) and text.startswith("b'"):
        text = text[2:-1]
    if says_disk_full(text):
        return EngineError(
            f"the Docker host's disk is full (asked to {doing}): {text}; make room, for example with"
            " `docker system prune` and `agent-env sandboxes --prune`",
            "disk_full",
        )
    if "fully subnetted" in text or "non-overlapping IPv4 address pool" in text:
        return EngineError(
            f"Docker has no free subnet left (asked to {doing}): {text}; remove unused networks with"
            ' `docker network prune`, or add to /etc/docker/daemon.json {"default-address-pools":'
            ' [{"base": "10.192.0.0/12", "size": 29}]} and restart Docker',
            "docker_networks",
        )
    if "bind source path does not exist" in text:
        return EngineError(
            f"the Docker daemon does not see a folder of this machine (asked to {doing}): {text}; a daemon in a snap"
            " or on another machine can't be used, nor one whose socket is mounted into the container that this runs in"
            " unless that folder is mounted too, at the same path",
            "refused",
        )
    status = error.response.status_code if error.response is not None else 0
    if status == 404:
        return EngineError(f"Docker does not know it (asked to {doing}): {text}", "not_found")
    return EngineError(f"Docker refused to {doing}: {text}", "refused", ambiguous=status in (502, 503, 504))


def _is_timeout(error: BaseException) -> bool:
    """urllib3 wraps a timeout that strikes in the middle of an answer in a ConnectionError."""
    return "timed out" in str(error).lower()


def _innermost(error: BaseException) -> str:
    """requests and urllib3 wrap the reason several times: `('Connection aborted.', FileNotFoundError(2, ...))`."""
    seen: BaseException = error
    while True:
        inner = next((arg for arg in seen.args if isinstance(arg, BaseException)), None)
        inner = inner or getattr(seen, "reason", None) or seen.__cause__
        if not isinstance(inner, BaseException):
            break
        seen = inner
    if isinstance(seen, OSError) and seen.strerror:
        return seen.strerror
    return str(seen) or type(seen).__name__
