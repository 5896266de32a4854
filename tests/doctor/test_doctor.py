"""The preflight: each fault of a training host or server is found, with the fix."""

import json
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_env.cli import main
from agent_env.doctor.finding import Level
from agent_env.doctor.host import env_host, trainer_host
from agent_env.doctor.server import check_server
from agent_env.loopback import serving
from agent_env.openenv import build_app
from agent_env.training.miles.rows import write_rows
from agent_env.training.rehearsal import read_rows
from agent_env.training.types import ServerSettings


def levels(findings: Iterator[object]) -> dict[str, Level]:
    return {finding.what: finding.level for finding in findings}  # type: ignore[attr-defined]


def test_a_proxy_that_takes_loopback_is_warned_of() -> None:
    found = levels(trainer_host(8, {"HTTPS_PROXY": "http://proxy:3128"}))
    assert any("HTTPS_PROXY" in what and level is Level.WARN for what, level in found.items())
    assert all("PROXY" not in what for what in levels(trainer_host(8, {"HTTPS_PROXY": "x", "no_proxy": "127.0.0.1"})))


def test_too_few_open_files_fail_with_the_number_needed() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    (finding,) = [finding for finding in trainer_host(hard, {}) if "open files" in finding.what]
    assert finding.level is Level.FAIL
    assert finding.fix.startswith("ulimit -n ")


def test_a_missing_package_is_named_with_its_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "websockets" else object())
    assert main(["doctor", "http://127.0.0.1:1"]) == 1
    out = capsys.readouterr().out
    assert "missing packages: websockets: pip install" in out


def test_an_unset_token_variable_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("NO_SUCH_TOKEN", raising=False)
    assert main(["doctor", "http://127.0.0.1:1", "--token-var", "NO_SUCH_TOKEN"]) == 1
    assert "NO_SUCH_TOKEN is not set here" in capsys.readouterr().out


def test_a_file_without_rows_is_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.jsonl").write_text("{}\n")
    assert main(["doctor", "--rows", str(tmp_path / "x.jsonl")]) == 2
    assert "x.jsonl: not a rows file" in capsys.readouterr().err


async def test_a_server_that_is_not_there_fails_with_advice() -> None:
    (finding,) = [finding async for finding in check_server("http://127.0.0.1:1", None, None, 8)]
    assert finding.level is Level.FAIL
    assert "can't be reached from here" in finding.what


@pytest.mark.integration
async def test_this_hosts_tier_is_told() -> None:
    found = [finding async for finding in env_host()]
    assert any("sandbox tier" in finding.what or "isolated" in finding.what for finding in found)


@pytest.mark.integration
async def test_a_sound_server_plays_a_row_and_a_small_one_is_warned_of(tmp_path: Path) -> None:
    async with serving(build_app("gridsim-v1", max_concurrent_envs=4, token="s3cret")) as url:
        settings = ServerSettings(urls=(url,), token_var="TOKEN")
        await write_rows(settings, tmp_path, token="s3cret", progress=lambda text: None)
        row = read_rows(tmp_path / "eval.jsonl")[0]
        found = [finding async for finding in check_server(url, "s3cret", row, 32)]
        assert [finding.level for finding in found].count(Level.WARN) == 1
        assert not [finding for finding in found if finding.level is Level.FAIL]
        assert "scored 0 for doing nothing" in found[-1].what

        refused = [finding async for finding in check_server(url, "wrong", row, 4)]
        assert refused[-1].level is Level.FAIL
        assert "refuses the token" in refused[-1].what

        row["metadata"]["server"]["bundle"] = "f" * 64
        other = [finding async for finding in check_server(url, "s3cret", row, 4)]
        assert "the rows are of bundle ffffffffffff" in other[-1].what
        assert "s3cret" not in json.dumps([str(finding) for finding in (*found, *refused, *other)])
