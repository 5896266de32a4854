"""examples/slurm/gridsim.sbatch, run whole, with stand-ins for srun and scontrol that run everything here."""

from __future__ import annotations

import json
import os
import re
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.scale.hosts import GRIDSIM, ROOT

SLURM = ROOT / "examples" / "slurm"
JOB = SLURM / "gridsim.sbatch"
# Runs the command, without srun's own options, which it notes down.
SRUN = """\
#!/bin/bash
printf '%s\\n' "$*" >> "$NOTES"
while [[ "${1:-}" == --* ]]; do
    case "$1" in --output=*) exec > "${1#--output=}" 2>&1 ;; esac
    shift
done
exec "$@"
"""
SCONTROL = "#!/bin/bash\necho 127.0.0.1\n"
TRAIN = """\
import json, os, stat, sys
run = os.environ["RUN"]
kept = {name: os.environ[name] for name in ("ENV_URL", "DATA", "AGENTENV_TOKEN")}
kept["mode"] = stat.S_IMODE(os.stat(f"{run}/token").st_mode)
kept["token"] = open(f"{run}/token").read().strip()
with open(f"{run}/seen.json", "w") as file:
    json.dump(kept, file)
"""


def test_the_job_is_bash_and_names_its_resources() -> None:
    subprocess.run(["bash", "-n", JOB], check=True)
    directives = [line for line in JOB.read_text().splitlines() if line.startswith("#SBATCH")]
    assert directives.count("#SBATCH hetjob") == 1
    first_command = JOB.read_text().index("set -euo")
    assert all(JOB.read_text().index(line) < first_command for line in directives), "SLURM stops reading at a command"


def test_prometheus_reads_the_files_that_the_job_writes() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML comes with the openenv extra")
    [job] = yaml.safe_load((SLURM / "prometheus.yml").read_text())["scrape_configs"]
    script = JOB.read_text()
    assert job["authorization"] == {"type": "Bearer", "credentials_file": "token"}
    assert '"$RUN/token"' in script
    assert job["file_sd_configs"][0]["files"] == ["targets/*.json"]
    assert '"$RUN/targets/envs.json"' in script


@pytest.mark.integration
def test_the_job_serves_writes_rows_and_trains(tmp_path: Path) -> None:
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (tmp_path / "train.py").write_text(TRAIN)
    run = tmp_path / "run"
    environ = {
        **os.environ,
        "PATH": f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "NOTES": str(tmp_path / "notes"),
        "RUN": str(run),
        "SLURM_JOB_ID": "77",
        "SLURM_JOB_NODELIST": "node[1-1]",
        "ENV_PORT": str(port),
        "CAPACITY": "4",
        "BUNDLE": str(GRIDSIM),
        "TRAIN": f"RUN={run} python3 {tmp_path}/train.py",
    }
    done = subprocess.run(
        ["bash", JOB], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=100, check=False
    )
    logs = "".join(path.read_text() for path in run.glob("*.log"))
    assert done.returncode == 0, done.stderr + logs

    seen = json.loads((run / "seen.json").read_text())
    assert seen["ENV_URL"] == f"http://127.0.0.1:{port}"
    assert seen["AGENTENV_TOKEN"] == seen["token"]
    assert seen["mode"] == stat.S_IRUSR | stat.S_IWUSR
    assert not (run / "token").exists(), "it goes with the job"
    row = json.loads((run / "data" / "eval.jsonl").read_text().partition("\n")[0])
    assert row["metadata"]["server"]["url_var"] == "ENV_URL"
    assert row["metadata"]["server"]["token_var"] == "AGENTENV_TOKEN"
    [targets] = json.loads((run / "targets" / "envs.json").read_text())
    assert targets == {"targets": [f"127.0.0.1:{port}"], "labels": {"slurm_job": "77"}}
    told = done.stdout + done.stderr + logs + (tmp_path / "notes").read_text()
    assert seen["token"] not in told
    assert re.search(r"--het-group=0 .*agent-env serve", (tmp_path / "notes").read_text(), re.DOTALL)
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port), 1):
        pass
