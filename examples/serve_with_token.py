"""Serve GridSim to rollouts on other machines, which must know the token.

    export AGENTENV_TOKEN=$(openssl rand -hex 32)    # and the same where Miles' Ray workers start
    python serve_with_token.py
    python -m agent_env.training.miles http://envs.internal:8200 data --token-var AGENTENV_TOKEN

The token crosses the network as it is: keep to a private network, or put a TLS proxy in front.
"""

import os

import uvicorn

from agent_env.openenv import build_app

app = build_app("gridsim-v1", max_concurrent_envs=64, token=os.environ["AGENTENV_TOKEN"])

if __name__ == "__main__":
    uvicorn.run(app, host="0.0.0.0", port=8200)
