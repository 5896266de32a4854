"""Serves a bundle on a port until it is stopped: `python -m tests.faults.serve BUNDLE PORT CAPACITY`."""

import sys

import uvicorn

from agent_env.openenv import build_app

if __name__ == "__main__":
    bundle, port, capacity = sys.argv[1:]
    app = build_app(bundle, max_concurrent_envs=int(capacity), shutdown_timeout=5.0)
    # Pings that notice a vanished client within two seconds, so that tests needn't wait for the usual forty.
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=int(port),
        log_level="warning",
        ws_ping_interval=1.0,
        ws_ping_timeout=1.0,
        timeout_graceful_shutdown=5,
    )
