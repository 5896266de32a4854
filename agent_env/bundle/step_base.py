"""What every step of a task has."""

from __future__ import annotations

from typing import Any

from pydantic import field_validator

from agent_env.bundle.fields import Data, Text

__all__ = ["BaseStep"]


class BaseStep(Data):
    """What every step has."""

    id: Text
    depends_on: tuple[Text, ...] | None = None
    """Ids of the steps that must have ended before; None: every earlier step."""
    fail_task_on_error: bool = True
    """False: an error of this step is noted and the episode goes on."""
    retry_config: dict[str, Any] | None = None

    @field_validator("depends_on", mode="before")
    @classmethod
    def _read_depends_on(cls, value: object) -> object:
        """Each entry is a step id, or `{"task_step_id": id}`."""
        if not isinstance(value, list):
            return value
        return tuple(entry.get("task_step_id") if isinstance(entry, dict) else entry for entry in value)

    @property
    def named_env(self) -> str | None:
        """The one env that this step acts on, if it names one."""
        env_id: str | None = getattr(self, "env_id", None)
        return env_id

    def unplayable(self) -> str | None:
        """Why an episode can't play this step; None: it can."""
        if self.retry_config is not None:
            return "retry_config would play a turn of the trainer's agent again"
        return None
