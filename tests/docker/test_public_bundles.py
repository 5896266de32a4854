"""The public framework's example bundles in containers: their servers and verify.py unchanged.

Their images are built on Debian's Python with pip, which asks registries; here the base is this machine's Python with
the same packages, and only the Dockerfiles differ. The bundle `hello` has no server and no Dockerfile: it is played in
our own workspace, whose Dockerfile starts FROM python:3.12-slim. An engine that hasn't that image gets a stand-in.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_env.bundle import load_bundle
from agent_env.sandbox.docker import DockerSandbox
from tests.peers import peer_python, public_examples
from tests.public_bundles import copy_example, plays

pytestmark = [pytest.mark.docker, pytest.mark.peers, pytest.mark.timeout(900)]

ROOTFS = Path(__file__).parents[2] / "scripts" / "python_rootfs.py"
IMAGE = "agentenv-protocol:local"
SLIM = "python:3.12-slim"
DOCKERFILE = f'FROM {IMAGE}\nWORKDIR /app\nCOPY . .\nUSER env\nCMD ["python", "server.py"]\n'


@pytest.fixture(scope="module")
def image(engine: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An image with this Python and what the examples' requirements.txt ask for."""
    python = peer_python("agentenv-framework-protocol==0.1.379", "mcp>=1.25,<2")
    (site,) = python.parents[1].glob("lib/python*/site-packages")
    make_image(engine, IMAGE, tmp_path_factory.mktemp("image") / "root", site)
    return IMAGE


@pytest.fixture
def slim(engine: Any, tmp_path: Path) -> Iterator[None]:
    """An engine that has python:3.12-slim: its own one, or for the time of the test this Python with a shell."""
    if engine.images(SLIM):
        yield
        return
    make_image(engine, SLIM, tmp_path / "root", "--programs", "sh", "bash", "cat", "mkdir")
    try:
        yield
    finally:
        # What was built on the stand-in must not be taken for the real thing later.
        for made in engine.images("agent-env/box", filters={"since": SLIM}):
            engine.remove_image(made["Id"], force=True)
        engine.remove_image(SLIM)


def make_image(engine: Any, name: str, root: Path, *arguments: str | Path) -> None:
    subprocess.run([sys.executable, ROOTFS, root, *arguments], check=True, timeout=300)
    tar = ["tar", "-C", str(root), "--numeric-owner", "--owner=0", "--group=0", "-c", "."]
    repository, _, tag = name.partition(":")
    with subprocess.Popen(tar, stdout=subprocess.PIPE) as packed:
        engine.import_image_from_data(packed.stdout, repository=repository, tag=tag)
    shutil.rmtree(root)


@pytest.mark.parametrize(("name", "env"), [("echo-mcp", "echo"), ("mail-mcp", "mail")])
async def test_an_example_plays_in_a_container(
    name: str, env: str, image: str, box: DockerSandbox, tmp_path: Path
) -> None:
    folder = copy_example(name, public_examples(tmp_path / "wheel"), tmp_path)
    (folder / "envs" / env / "Dockerfile").write_text(DOCKERFILE)
    await plays(name, load_bundle(folder), box, timeout=300)


async def test_hello_plays_in_a_container_of_our_workspace(slim: None, box: DockerSandbox, tmp_path: Path) -> None:
    folder = copy_example("hello", public_examples(tmp_path / "wheel"), tmp_path)
    await plays("hello", load_bundle(folder), box, timeout=300)
