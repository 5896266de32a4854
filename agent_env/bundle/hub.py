"""Bundles in datasets of the Hugging Face Hub: `hf://ORG/DATASET/PATH[@REVISION]`.

Only the files below PATH are downloaded, by `huggingface_hub`, whose cache, token (`HF_TOKEN`), endpoint
(`HF_ENDPOINT`) and offline (`HF_HUB_OFFLINE`) variables apply. Its cache holds links into a store of blobs, which an
env's sandbox can't follow, so each revision of a bundle is copied once into a folder of its own, never changed
afterwards, below `$XDG_CACHE_HOME/agent-env/bundles` (`~/.cache/...`).
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

from agent_env.bundle.model import BundleNotFound, Problem

__all__ = ["HubAddress", "fetch", "parse_address"]

_FORM = "hf://ORG/DATASET/PATH[@REVISION]"
_PART = re.compile(r"[\w.-]+(?:[\w. -]*[\w.-])?")


class HubAddress(NamedTuple):
    repository: str
    """`ORG/DATASET`."""
    path: str
    """The bundle's folder in the dataset; "" for the whole of it."""
    revision: str | None
    """A branch, tag or commit; None: the default branch."""


def parse_address(address: str) -> HubAddress:
    """Read an `hf://` address. Raises BundleNotFound."""
    body, at, revision = address.removeprefix("hf://").partition("@")
    parts = body.rstrip("/").split("/")
    if parts[:1] == ["datasets"]:
        parts = parts[1:]
    if len(parts) < 2 or (at and not revision) or not all(_PART.fullmatch(part) and part != ".." for part in parts):
        raise _error(address, "it is no address of a dataset's folder", f"write {_FORM}")
    return HubAddress("/".join(parts[:2]), "/".join(parts[2:]), revision or None)


def fetch(address: str) -> tuple[Path, str]:
    """Download the bundle at an `hf://` address, or find it in the cache.

    Returns its folder and the commit that the revision resolved to. Raises BundleNotFound when the dataset, revision or
    path is missing or not accessible, when the Hub can't be reached and nothing is cached, and when `huggingface_hub`
    isn't installed.
    """
    repository, path, revision = parse_address(address)
    snapshot = _snapshot(address, repository, path, revision)
    commit = snapshot.name
    if not (snapshot / path).is_dir():
        what = f"the dataset {repository} has no folder {path!r} at {revision or 'its default branch'}"
        raise _error(address, what, f"check the path at https://huggingface.co/datasets/{repository}/tree/{commit}")
    try:
        return _copied(snapshot / path, repository, path, commit), commit
    except OSError as error:
        what = f"it can't be copied to {_cache()} ({error.strerror})"
        raise _error(address, what, "make room, or set XDG_CACHE_HOME") from None


def _snapshot(address: str, repository: str, path: str, revision: str | None) -> Path:
    try:
        from huggingface_hub import errors, snapshot_download
    except ImportError:
        what = "huggingface_hub is not installed"
        raise _error(address, what, "pip install 'agent-env[openenv]'") from None
    try:
        found = snapshot_download(
            repository,
            repo_type="dataset",
            revision=revision,
            allow_patterns=[f"{path}/*"] if path else None,
            endpoint=os.environ.get("HF_ENDPOINT") or None,  # as it is now: the library reads it when it is imported
        )
    except errors.GatedRepoError:
        what = f"the dataset {repository} is gated, and your account has no access to it"
        raise _error(address, what, "ask for access on its page, and set HF_TOKEN to your token") from None
    except errors.RepositoryNotFoundError:
        what = f"there is no dataset {repository}, or it is private"
        raise _error(address, what, "check the name; for a private one set HF_TOKEN") from None
    except errors.RevisionNotFoundError:
        what = f"the dataset {repository} has no revision {revision!r}"
        raise _error(address, what, "name a branch, a tag or a commit of it") from None
    except errors.LocalEntryNotFoundError:
        what = "the Hub can't be reached (or HF_HUB_OFFLINE is set), and the bundle is not in the cache"
        raise _error(address, what, "download it once with the network, or serve a local folder") from None
    except Exception as error:  # its transport has errors of its own, which change with its version
        what = f"the download failed ({type(error).__name__}: {_first_line(error)})"
        raise _error(address, what, "try again, or download it with `hf download` and serve the folder") from None
    return Path(str(found))


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".cache") / "agent-env" / "bundles"


def _copied(source: Path, repository: str, path: str, commit: str) -> Path:
    """The folder's copy without links, made if need be: whole or not at all, whoever else is making it too."""
    key = "--".join([*repository.split("/"), *path.split("/"), commit[:12]])
    name = path.rpartition("/")[2] or repository.rpartition("/")[2]
    target = _cache() / key / name
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=target.parent, prefix="."))
    try:
        shutil.copytree(source, scratch / name)
        try:
            os.rename(scratch / name, target)
        except OSError:
            if not target.is_dir():  # else another process was faster, with the same files
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return target


def _error(address: str, what: str, fix: str) -> BundleNotFound:
    return BundleNotFound(address, [Problem("", "", what, fix)])
