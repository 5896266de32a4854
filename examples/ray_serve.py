"""Serve a bundle on a Ray cluster: one env server a node, replicas added as sessions come, behind Ray Serve's proxy.

    python ray_serve.py --bundle gridsim-v1 --capacity 256 --max-replicas 16  # in a cluster, or on this machine alone
    python -m agent_env.training.miles http://HEAD:8000 data --token-var AGENTENV_TOKEN

The bundle must be there on every node: an installed one, an hf:// address, or a folder on a shared disk. The token is
read on each node from AGENTENV_TOKEN, so export it before `ray start`; in a runtime environment Ray would log it.

A replica is a whole server: its cap, its queue and its envs are its own, and a session stays on the replica that
accepted its WebSocket. Nothing is shared, so a replica that dies loses only its own envs, whose rollouts replay their
calls on another. GET /status and /metrics answer for the one replica that is reached, with a proxy's preference for its
own node's: Ray's own metrics (ongoing requests by replica) show the whole.

Needs `pip install 'agent-env[openenv,ray]'`. Each node must let its processes make namespaces: `agent-env doctor`.
"""

import argparse
import os

from fastapi import FastAPI
from ray import serve


def application(
    bundle: str,
    capacity: int,
    min_replicas: int,
    max_replicas: int,
    max_per_node: int | None = 1,
    drain: float = 900.0,
    cpus: float = 1.0,
) -> serve.Application:
    """capacity: episodes at once on one replica. drain: seconds that a replica which is scaled away, or replaced by a
    new version, gives its episodes to end; what is left then is replayed on others. cpus: reserved for one replica."""

    def env_server() -> FastAPI:
        from agent_env.openenv import build_app  # on the replica's node: the driver needs no server

        token = os.environ.get("AGENTENV_TOKEN") or None
        return build_app(bundle, max_concurrent_envs=capacity, token=token)

    deployment = serve.deployment(
        serve.ingress(env_server)(),
        name="env-server",
        # One session is one ongoing request, for as long as it lasts. Sessions that no replica has room for wait in
        # the proxy, so that a new replica gets them at once, and are tried again by their rollouts after a minute.
        # So does any other request then: ask the proxy's own /-/healthz whether Serve is up.
        max_ongoing_requests=capacity,
        autoscaling_config={
            "min_replicas": min_replicas,
            "max_replicas": max_replicas,
            "target_ongoing_requests": max(1, capacity * 3 // 4),
            "upscale_delay_s": 5.0,  # a step's rollouts come all at once
            "downscale_delay_s": 600.0,  # and between two steps there are none: keep what the next one needs
        },
        max_replicas_per_node=max_per_node,
        ray_actor_options={"num_cpus": cpus},
        graceful_shutdown_timeout_s=drain,
        health_check_period_s=5.0,
        health_check_timeout_s=15.0,
    )
    return deployment.bind()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", default="gridsim-v1")
    parser.add_argument("--capacity", type=int, default=64, help="episodes at once on a replica (default: 64)")
    parser.add_argument("--min-replicas", type=int, default=1)
    parser.add_argument("--max-replicas", type=int, default=4)
    parser.add_argument("--max-per-node", type=int, default=1, help="replicas on one node (default: 1)")
    parser.add_argument("--cpus", type=float, default=1.0, help="cores reserved for a replica (default: 1)")
    parser.add_argument("--host", default="0.0.0.0", help="where the proxies listen (default: %(default)s)")
    parser.add_argument("--port", type=int, default=8000)
    options = parser.parse_args()
    if options.host != "127.0.0.1" and not os.environ.get("AGENTENV_TOKEN"):
        parser.error("set AGENTENV_TOKEN on every node, or listen on 127.0.0.1: without a token anyone drives the envs")
    serve.start(proxy_location="EveryNode", http_options={"host": options.host, "port": options.port})
    serve.run(
        application(
            options.bundle,
            options.capacity,
            options.min_replicas,
            options.max_replicas,
            max_per_node=options.max_per_node,
            cpus=options.cpus,
        ),
        name="agent-env",
        route_prefix="/",
        blocking=True,
    )


if __name__ == "__main__":
    main()
