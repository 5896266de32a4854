"""Serve GridSim on this machine, to rollouts on this machine. Stop it with Ctrl-C or SIGTERM."""

import uvicorn

from agent_env.openenv import build_app

app = build_app("gridsim-v1", max_concurrent_envs=64)

if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=8200)
