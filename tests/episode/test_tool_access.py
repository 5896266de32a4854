"""Who sees which tool: the public gateway's rules."""

from __future__ import annotations

import pytest

from agent_env.episode.tool_access import ToolAccess, hidden_by_default

Change = tuple[str, str, list[str]]


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ([], {"a": True, "hidden": False}),
        ([("disable", "default", ["a"])], {"a": False, "b": True, "hidden": False}),
        ([("disable", "other", ["a"])], {"a": True}),
        ([("disable", "*", ["a"])], {"a": False, "b": True}),
        ([("disable", "default", ["*"])], {"a": False, "b": False, "hidden": False}),
        ([("disable", "default", ["*"]), ("enable", "default", ["a"])], {"a": True, "b": False}),
        ([("enable", "default", ["a"]), ("disable", "default", ["*"])], {"a": False, "b": False}),
        ([("enable", "default", ["*"])], {"a": True, "hidden": False}),
        ([("enable", "default", ["hidden"])], {"a": True, "hidden": True}),
        ([("enable", "*", ["hidden"])], {"hidden": True}),
        ([("enable", "default", ["hidden"]), ("disable", "default", ["*"])], {"a": False, "hidden": False}),
        ([("disable", "*", ["*"]), ("enable", "default", ["a"])], {"a": True, "b": False}),
        ([("enable", "default", ["a"]), ("disable", "*", ["a"])], {"a": False}),
        ([("disable", "default", ["a"]), ("enable", "*", ["*"])], {"a": True, "b": True, "hidden": False}),
        ([("disable", "default", ["a"]), ("disable", "other", ["b"])], {"a": False, "b": True}),
    ],
)
def test_rules(changes: list[Change], shown: dict[str, bool]) -> None:
    access = ToolAccess()
    for action, role, tools in changes:
        access.change(action, role, tools)
    seen = {tool: access.shows("default", tool, hidden=tool == "hidden") for tool in shown}
    assert seen == shown


@pytest.mark.parametrize(("meta", "hidden"), [({}, False), ({"agentenv.io/hiddenByDefault": True}, True)])
def test_a_tool_is_hidden_by_its_own_mark(meta: dict[str, object], hidden: bool) -> None:
    assert hidden_by_default(meta) is hidden
    assert hidden_by_default({"agentenv.io/hiddenByDefault": "yes"}) is False
