"""agent_env connects agent environments to RL trainers.

Bundles of tasks and envs are served as sandboxed episodes (`agent_env.openenv.build_app`); a trainer's agent function
plays them (`agent_env.training`). Nothing is imported here, so each side loads only what it needs.
"""

__version__ = "0.1.0"
