"""Envs with requirements: when a virtual environment is built, and that it is built once."""

from __future__ import annotations

import asyncio
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent_env.bundle.model import EnvSpec
from agent_env.sandbox import DeployFailed, Verification
from agent_env.sandbox.process import ProcessSandbox, venvs
from agent_env.sandbox.process.layout import Interpreter
from tests.sandbox.doubles import PROBE, exists, run, write_env

WHEEL = "tiny_lib-1.0-py3-none-any.whl"


def write_wheel(folder: Path, body: str) -> str:
    """A wheel made by hand, so that nothing is downloaded or built: the line that requires it."""
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / WHEEL, "w") as wheel:
        wheel.writestr("tiny_lib.py", body)
        wheel.writestr("tiny_lib-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-lib\nVersion: 1.0\n")
        wheel.writestr("tiny_lib-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("tiny_lib-1.0.dist-info/RECORD", "")
    return f"./{WHEEL}"


def write_env_that_requires(folder: Path, *lines: str, source: str = PROBE) -> EnvSpec:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "requirements.txt").write_text("\n".join(lines) + "\n")
    return write_env(folder, source, requirements=folder / "requirements.txt")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AGENT_ENV_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
async def sandbox(cache: Path) -> AsyncIterator[ProcessSandbox]:
    box = ProcessSandbox(tier="namespaces")
    try:
        yield box
    finally:
        await box.close()


@pytest.mark.parametrize(
    ("line", "met"),
    [
        ("pytest", True),
        ("pytest>=8", True),
        ("PyTest >= 8 ; python_version >= '3.8'", True),
        ("no-such-thing ; python_version < '3'", True),
        ("pytest<8", False),
        ("pytest==8.0.0rc1", False),
        ("no-such-thing-at-all", False),
        ("httpx[http2]", False),  # h2 isn't here
        ("httpx[brotli]>=0.1", False),
        ("pydantic[timezone]", True),  # only Windows needs something for it
        ("-r other.txt", False),
        ("./local.whl", False),
        ("pytest @ https://example.com/pytest.whl", False),
    ],
)
def test_requirement_is_compared_with_what_is_installed(line: str, met: bool) -> None:
    assert (venvs.unsatisfied([line]) == []) is met


async def test_satisfied_requirements_need_no_environment(cache: Path, tmp_path: Path) -> None:
    env = write_env_that_requires(tmp_path / "e", "# what it needs", "pydantic>=2  # data", "", "agent-env")
    assert await venvs.interpreter_for(env) == Interpreter.own()
    assert not exists(str(cache))


@pytest.mark.integration
async def test_environment_is_built_once_for_all(sandbox: ProcessSandbox, cache: Path, tmp_path: Path) -> None:
    line = write_wheel(tmp_path / "e", "NAME = 'tiny'\n")
    env = write_env_that_requires(tmp_path / "e", line, "agent-env", source=f"import tiny_lib\n{PROBE}")
    other = ProcessSandbox(tier="namespaces")
    try:
        one, two = await asyncio.gather(sandbox.deploy(env, episode_id="1"), other.deploy(env, episode_id="2"))
        seen = await run(one, "import sys, tiny_lib; value = [tiny_lib.NAME, tiny_lib.__file__, sys.prefix]")
        (folder,) = [path for path in (cache / "venvs").iterdir() if path.is_dir()]
        assert seen == [
            "tiny",
            str(folder / f"lib/python{venvs.sys.version[:4]}/site-packages/tiny_lib.py"),
            str(folder),
        ]
        code = "import tiny_lib\ndef verify(mcp_url):\n    return [{'name': tiny_lib.NAME}]"
        rows = await sandbox.verify(env, Verification(code=code, filename="v.py"), one.connect)
        assert rows == [{"name": "tiny"}]
        await asyncio.gather(one.kill(), two.kill())
    finally:
        await other.close()


@pytest.mark.integration
async def test_failed_build_tells_what_the_installer_said(sandbox: ProcessSandbox, cache: Path, tmp_path: Path) -> None:
    env = write_env_that_requires(tmp_path / "e", "./not-there-1.0-py3-none-any.whl")
    with pytest.raises(DeployFailed, match=r"(?s)requirements could not be installed.*not-there-1.0"):
        await sandbox.deploy(env, episode_id="e")
    assert [path.name for path in (cache / "venvs").iterdir() if path.suffix != ".lock"] == []


@pytest.mark.integration
async def test_cancelled_build_leaves_nothing(cache: Path, tmp_path: Path) -> None:
    env = write_env_that_requires(tmp_path / "e", write_wheel(tmp_path / "e", ""))
    task = asyncio.ensure_future(venvs.interpreter_for(env))
    await asyncio.wait([task], timeout=0.5)
    task.cancel()
    await asyncio.wait([task])
    assert [path.name for path in (cache / "venvs").iterdir() if path.suffix != ".lock"] == []


@pytest.mark.integration
async def test_library_that_starts_a_thread_is_not_forked(
    sandbox: ProcessSandbox, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    body = (
        "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True, name='ticker').start()\n"
    )
    line = write_wheel(tmp_path / "e", body)
    env = write_env_that_requires(tmp_path / "e", line, source=f"import tiny_lib\n{PROBE}")
    instance = await sandbox.deploy(env, episode_id="e")
    assert "1 threads were started (ticker) by its libraries" in caplog.text
    assert await run(instance, "import threading; value = threading.active_count()") >= 2
    assert await run(instance, "import sys; value = sys.orig_argv[-1]") == "server.py"
    await instance.kill()


@pytest.mark.integration
async def test_library_is_imported_once_for_all_episodes(sandbox: ProcessSandbox, tmp_path: Path) -> None:
    body = "import os, random\nPID, DRAWN = os.getpid(), random.random()\n"
    line = write_wheel(tmp_path / "e", body)
    source = f"import tiny_lib, random\nOWN = random.Random()\n{PROBE}"
    env = write_env_that_requires(tmp_path / "e", line, source=source)
    one, two = [await sandbox.deploy(env, episode_id=str(number)) for number in range(2)]
    code = "import sys, tiny_lib; value = [tiny_lib.DRAWN, sys.modules['__main__'].OWN.random()]"
    first, second = await run(one, code), await run(two, code)
    assert first[0] == second[0]
    assert first[1] != second[1]  # its own code ran in each episode
    await asyncio.gather(one.kill(), two.kill())
