"""Bundles at `hf://` addresses, against a stand-in of the Hub."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from agent_env.bundle import BundleNotFound, Served, load_bundle, resolve_bundles
from agent_env.bundle.hub import HubAddress, parse_address
from tests.bundle import good
from tests.bundle.hub import Hub, serve_hub

ADDRESS = "hf://acme/envs/bundles/shop-v1"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The bundle as the dataset has it."""
    return good.make(tmp_path / "source")


@pytest.fixture
def hub(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    files = {f"bundles/shop-v1/{path.relative_to(source)}": path.read_bytes() for path in files_of(source)}
    with serve_hub(Hub(files={**files, "README.md": b"x", "data/huge.parquet": b"y"})) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hf"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        monkeypatch.setenv("HF_TOKEN", "")
        monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        yield hub


def files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def refused(address: str = ADDRESS) -> str:
    with pytest.raises(BundleNotFound) as raised:
        resolve_bundles(address)
    (problem,) = raised.value.problems
    text = str(problem)
    assert "\n" not in text
    return text


def test_a_bundle_is_downloaded_and_its_files_are_no_links(hub: Hub, source: Path) -> None:
    served = resolve_bundles(ADDRESS)
    bundle = served.bundle_of["all"]
    assert (served.name, len(served.splits["all"].tasks)) == ("shop-v1", 4)
    assert not any(path.is_symlink() for path in bundle.folder.rglob("*"))
    found = {path.relative_to(bundle.folder): path.read_bytes() for path in files_of(bundle.folder)}
    assert found == {path.relative_to(source): path.read_bytes() for path in files_of(source)}


def test_only_the_bundles_files_are_downloaded(hub: Hub) -> None:
    resolve_bundles(ADDRESS)
    assert not any("huge.parquet" in request for request in hub.seen)


def test_the_fingerprint_holds_content_and_commit(hub: Hub, source: Path) -> None:
    first = resolve_bundles(ADDRESS).fingerprint
    assert first != load_bundle(source).fingerprint
    assert resolve_bundles(f"{ADDRESS}@{'a' * 40}").fingerprint == first
    hub.revisions["v2"] = "b" * 40
    assert resolve_bundles(f"{ADDRESS}@v2").fingerprint != first


def test_a_moved_branch_is_another_revision(hub: Hub) -> None:
    before = resolve_bundles(ADDRESS)
    hub.revisions["main"] = "c" * 40
    hub.files["bundles/shop-v1/README.md"] = b"Changed."
    after = resolve_bundles(ADDRESS)
    assert after.description == "Changed."
    assert before.bundle_of["all"].folder != after.bundle_of["all"].folder
    assert before.bundle_of["all"].folder.is_dir()


def test_a_whole_dataset_may_be_the_bundle(hub: Hub) -> None:
    hub.files = {path.removeprefix("bundles/shop-v1/"): data for path, data in hub.files.items() if "shop" in path}
    assert resolve_bundles("hf://acme/envs").name == "envs"


def test_the_cache_serves_when_the_hub_is_down(hub: Hub) -> None:
    first = resolve_bundles(ADDRESS).fingerprint
    hub.down = True
    assert resolve_bundles(ADDRESS).fingerprint == first


def test_the_cache_serves_offline_without_a_request(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    first = resolve_bundles(ADDRESS).fingerprint
    hub.seen.clear()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert resolve_bundles(ADDRESS).fingerprint == first
    assert hub.seen == []


def test_nothing_cached_and_no_hub_is_one_clear_line(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.down = True
    assert "can't be reached (or HF_HUB_OFFLINE is set), and the bundle is not in the cache" in refused()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "not in the cache; download it once" in refused()


def test_a_missing_dataset_revision_or_folder_is_one_clear_line(hub: Hub) -> None:
    assert "there is no dataset acme/nope, or it is private" in refused("hf://acme/nope/x")
    assert "has no revision 'v9'" in refused(f"{ADDRESS}@v9")
    assert "has no folder 'bundles/nope' at its default branch" in refused("hf://acme/envs/bundles/nope")


def test_a_private_dataset_wants_a_token_and_takes_it(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.token = "hf_secret"
    assert (
        "there is no dataset acme/envs, or it is private; check the name; for a private one set HF_TOKEN" in refused()
    )
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert resolve_bundles(ADDRESS).name == "shop-v1"


def test_a_gated_dataset_says_what_to_do(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.token, hub.gated = "hf_secret", True
    monkeypatch.setenv("HF_TOKEN", "hf_other")
    text = refused()
    assert "is gated, and your account has no access to it; ask for access" in text
    assert "hf_other" not in text


def test_a_bundle_in_a_dataset_has_its_own_problems(hub: Hub) -> None:
    hub.files["bundles/shop-v1/tasks/first.json"] = b"{"
    with pytest.raises(ValueError, match=r"tasks/first\.json: line 1 column 2: not valid JSON"):
        resolve_bundles(ADDRESS)


def test_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert "huggingface_hub is not installed; pip install 'agent-env[openenv]'" in refused()


def test_a_cache_that_cannot_be_written_is_one_clear_line(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert "it can't be copied to" in refused()


def test_two_servers_may_fetch_at_once(hub: Hub) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def resolve(_: int) -> Served:
        return resolve_bundles(ADDRESS)

    with ThreadPoolExecutor(4) as pool:
        folders = {served.bundle_of["all"].folder for served in pool.map(resolve, range(4))}
    (folder,) = folders
    assert [path.name for path in folder.parent.iterdir()] == ["shop-v1"]


def test_the_usual_variables_apply(hub: Hub, tmp_path: Path) -> None:
    """In a process of its own, as the library reads most of its variables when it is imported."""
    hub.token = "hf_secret"
    environ = {**os.environ, "HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home"), "HF_TOKEN": "hf_secret"}
    command = [sys.executable, "-m", "agent_env.cli", "check", ADDRESS]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.partition("\n")[0]) == (0, "shop-v1: Sells things.")
    assert (tmp_path / "home" / "hub").is_dir()


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("hf://a/b/c", HubAddress("a/b", "c", None)),
        ("hf://a/b/c/d-1.0/@v1", HubAddress("a/b", "c/d-1.0", "v1")),
        ("hf://datasets/a/b/c@refs/pr/3", HubAddress("a/b", "c", "refs/pr/3")),
        ("hf://a/b", HubAddress("a/b", "", None)),
    ],
)
def test_addresses_are_read(address: str, expected: HubAddress) -> None:
    assert parse_address(address) == expected


@pytest.mark.parametrize(
    "address", ["hf://", "hf://a", "hf:///b/c", "hf://a/b//c", "hf://a/b/../c", "hf://a/b/c@", "hf://a/b/*"]
)
def test_what_is_no_address_says_the_form(address: str) -> None:
    with pytest.raises(BundleNotFound, match=r"write hf://ORG/DATASET/PATH\[@REVISION\]"):
        parse_address(address)
