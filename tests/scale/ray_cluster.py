"""A Ray cluster of two nodes on this machine, with examples/ray_serve.py on it: `python ray_cluster.py CAPACITY`.

Runs in the environment that has Ray. Obeys words on stdin: `nodes` prints the nodes of the replicas, `remove` takes the
worker node away hard, `stop` (or the end of stdin) takes everything down. Answers are lines of JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import ray
from ray import serve
from ray.cluster_utils import Cluster

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "examples"))


def say(answer: Any) -> None:
    print(json.dumps(answer), flush=True)


def replica_nodes() -> dict[str, str]:
    """Replica -> node, of those that run."""
    from ray.util.state import list_actors

    found = list_actors(filters=[("state", "=", "ALIVE")], limit=1000)
    return {actor.name: actor.node_id for actor in found if actor.name and "SERVE_REPLICA" in actor.name}


def main(capacity: int, port: int) -> None:
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        run(capacity, port, folder)


def run(capacity: int, port: int, folder: str) -> None:
    from ray_serve import application

    # Beside it, Ray writes the head's address to its usual folder, which it doesn't make when it is given another.
    os.environ["RAY_TMPDIR"] = folder
    (Path(folder) / "ray").mkdir()
    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 1, "include_dashboard": True, "dashboard_port": 0, "temp_dir": folder},
    )
    try:
        worker = cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        # Both nodes are this machine: two proxies would want the same port.
        serve.start(proxy_location="HeadOnly", http_options={"host": "127.0.0.1", "port": port})
        bundle = str(ROOT / "bundles" / "gridsim-v1")
        serve.run(
            application(bundle, capacity, min_replicas=2, max_replicas=2, drain=5.0, cpus=0.5),
            name="agent-env",
            route_prefix="/",
        )
        say({"url": f"http://127.0.0.1:{port}"})
        for word in sys.stdin:
            match word.strip():
                case "nodes":
                    say(replica_nodes())
                case "remove":
                    killed = kill_node(worker)
                    cluster.remove_node(worker, allow_graceful=False)
                    say({"removed": worker.node_id, "killed": killed})
                case "stop":
                    break
    finally:
        serve.shutdown()
        ray.shutdown()
        cluster.shutdown()


def kill_node(worker: Any) -> int:
    """What a node's loss is to its processes: all of them end at the same moment, its raylet too."""
    raylets = [one.process.pid for one in worker.all_processes["raylet"]]
    found, stack = [], list(raylets)
    while stack:
        pid = stack.pop()
        try:  # a process is the child of a thread
            lists = [file.read_text() for file in Path(f"/proc/{pid}/task").glob("*/children")]
        except OSError:
            continue
        children = [int(word) for text in lists for word in text.split()]
        found += children
        stack += children
    for pid in [*found, *raylets]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    time.sleep(0.5)
    return len(found)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
