"""One play of one task: deploy its envs, run its steps, take the model's tool calls, verify, score, tear down."""

from agent_env.episode.episode import Episode
from agent_env.episode.scores import Reward, as_score, reward_of
from agent_env.episode.types import (
    END_TURN_TOOL,
    EpisodeFailed,
    ErrorKind,
    Event,
    Failure,
    Listener,
    Outcome,
    Prompt,
    Tool,
    ToolResult,
    no_listener,
)

__all__ = [
    "END_TURN_TOOL",
    "Episode",
    "EpisodeFailed",
    "ErrorKind",
    "Event",
    "Failure",
    "Listener",
    "Outcome",
    "Prompt",
    "Reward",
    "Tool",
    "ToolResult",
    "as_score",
    "no_listener",
    "reward_of",
]
