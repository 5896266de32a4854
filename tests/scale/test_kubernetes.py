"""examples/kubernetes, held against Kubernetes' own schema and against itself."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from agent_env.cli import main
from tests.peers import peer_python
from tests.scale.hosts import ROOT

yaml = pytest.importorskip("yaml", reason="PyYAML comes with the openenv extra")
MANIFEST = ROOT / "examples" / "kubernetes" / "env-servers.yaml"
CLIENT = "kubernetes==37.0.2"
# A field that the official models don't know is dropped by them, and one of a wrong type refused.
ROUND_TRIP = """
import json, sys
from kubernetes.client import ApiClient
api = ApiClient()
for document in json.load(sys.stdin):
    group = document["apiVersion"].rpartition("/")[2].capitalize()
    read = api.deserialize(json.dumps(document), group + document["kind"], "application/json")
    print(json.dumps(api.sanitize_for_serialization(read)))
"""


def documents() -> dict[str, dict[str, Any]]:
    return {document["kind"]: document for document in yaml.safe_load_all(MANIFEST.read_text())}


def test_everything_selects_the_same_pods() -> None:
    found = documents()
    deployment, labels = found["Deployment"]["spec"], {"app": "env-servers"}
    assert deployment["template"]["metadata"]["labels"] == labels
    assert deployment["selector"]["matchLabels"] == labels
    assert found["Service"]["spec"]["selector"] == labels
    assert found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels


def test_ports_and_probes_fit() -> None:
    [container] = documents()["Deployment"]["spec"]["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert f"--port={ports['http']}" in container["args"]
    assert documents()["Service"]["spec"]["ports"][0]["targetPort"] == "http"
    paths = {"startupProbe": "/health", "readinessProbe": "/health", "livenessProbe": "/health?alive=true"}
    for probe, path in paths.items():
        assert container[probe]["httpGet"] == {"path": path, "port": "http"}, "the one path without a token"


def test_a_pod_that_goes_has_time_for_its_episodes() -> None:
    spec = documents()["Deployment"]["spec"]["template"]["spec"]
    [container] = spec["containers"]
    script = container["lifecycle"]["preStop"]["exec"]["command"][2]
    compile(script, "preStop", "exec")
    assert "+ 895" in script
    # 5 s for the Service to hear of it, the wait, and then the server's own two times 20 s
    assert spec["terminationGracePeriodSeconds"] >= 5 + 895 + 40


def test_the_server_takes_these_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    """Up to the token, whose variable is not set here."""
    [container] = documents()["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert main([*container["args"]]) == 2
    assert "AGENTENV_TOKEN" in capsys.readouterr().err


@pytest.mark.peers
@pytest.mark.timeout(600)
def test_the_official_models_know_every_field() -> None:
    found = list(documents().values())
    python = peer_python(CLIENT)
    done = subprocess.run(
        [python, "-c", ROUND_TRIP], input=json.dumps(found), capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert [json.loads(line) for line in done.stdout.splitlines()] == found
