"""Requests made up from /openapi.json, by schemathesis: no 5xx but a full server's 503, no undocumented answer."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.conformance.test_openenv_clients import COUNTING, serving
from tests.peers import peer_python

pytestmark = [pytest.mark.peers, pytest.mark.timeout(600)]

SECONDS = 40


def test_no_request_breaks_the_server_or_gets_an_undocumented_answer(tmp_path: Path) -> None:
    settings = tmp_path / "schemathesis.toml"
    settings.write_text('[parameters]\nenv_name = "counting"\n')
    checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
    with serving(COUNTING) as url:
        command = [peer_python("schemathesis==4.32.5").with_name("st"), "--config-file", settings, "run"]
        command += [f"{url}/openapi.json", "--checks", checks, "--max-time", str(SECONDS), "--seed", "1"]
        command += ["--generation-database", "none"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-6000:]
    assert "Tested: 17" in done.stdout
