"""agentenv-framework 0.9.1364 with a bundle that it serves without Docker: `python framework.py PORT SESSIONS`."""

import sys
from pathlib import Path

import uvicorn

from agent_env.openenv import build_app

if __name__ == "__main__":
    port, sessions = (int(word) for word in sys.argv[1:])
    app = build_app(Path(__file__).parent / "hello", max_concurrent_envs=sessions)
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="error")
