"""`python -m tests.openenv.fake_server PORT '{"max_concurrent_envs": 8, ...}'`: a plain `uvicorn.run` of the fakes.

When it has stopped, it prints a JSON line of what they did. Keys that name fields of World set them.
"""

from __future__ import annotations

import dataclasses
import json
import signal
import sys

import uvicorn

from tests.openenv.doubles import NoSandbox, World, adding_app


def main() -> None:
    port, given = int(sys.argv[1]), json.loads(sys.argv[2])
    names = {field.name for field in dataclasses.fields(World)}
    world = World(**{name: given.pop(name) for name in list(given) if name in names})
    config = given.pop("uvicorn", {})
    sandbox = NoSandbox()
    app = adding_app(world, sandbox, **given)
    # uvicorn raises the signal again once it has stopped, which would end this process before its report.
    signal.signal(signal.SIGTERM, lambda *_: None)
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning", **config)
    print(json.dumps({"live": world.live, "closed": len(world.closed), "sandbox_closed": sandbox.closed}), flush=True)


if __name__ == "__main__":
    main()
