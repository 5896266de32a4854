"""How a task looks to the person who plays it: prompts and results in frames, tools to choose from, forms."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.syntax import Syntax
from rich.table import Table as Grid
from rich.text import Text

from agent_env.authoring.forms import fill
from agent_env.authoring.table import Table
from agent_env.episode import END_TURN_TOOL, ErrorKind, Outcome, Prompt, Tool, ToolResult

__all__ = ["Terminal"]

HELP = "a tool's number or name; NAME {JSON} calls it at once; ? lists the tools; q leaves"


class Terminal:
    """Standard input and output. Without a terminal, lines are read as they come, and shown."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console()

    def play(self, table: Table) -> int:
        """Play to the end. Returns 0; raises EOFError when the input ends, or the player leaves."""
        if sys.stdin.isatty():
            import readline  # noqa: F401  (input() edits lines with it)
        self._console.rule(escape(table.task.id))
        self._show_prompt(table.prompt, None)
        self._show_tools(table.tools)
        before = table.prompt
        while True:
            chosen = self._choose(table.tools)
            if chosen is None:
                continue
            tool, arguments = chosen
            if tool.name != END_TURN_TOOL.name:
                result = table.call(tool.name, arguments)
                self._show_result(result)
                if result.error is ErrorKind.TRANSPORT:
                    return 1
                continue
            after = table.end_turn(str(arguments.get("response", "")))
            if isinstance(after, Outcome):
                self._show_outcome(after)
                return 0
            self._show_prompt(after, before)
            self._show_tools(table.tools)
            before = after

    def _choose(self, tools: tuple[Tool, ...]) -> tuple[Tool, dict[str, Any]] | None:
        """What is called next, with its arguments; None: nothing yet."""
        line = self._ask("> ").strip()
        name, _, rest = line.partition(" ")
        if name in ("q", "quit", "exit"):
            raise EOFError
        if not name:
            return None
        by_name = {tool.name: tool for tool in tools}
        tool = tools[int(name) - 1] if name.isdecimal() and 1 <= int(name) <= len(tools) else by_name.get(name)
        if tool is None:
            if name not in ("?", "help"):
                self._say(f"there is no tool {name!r}")
            self._show_tools(tools)
            return None
        if not rest.strip():
            return tool, fill(tool.input_schema, self._ask, self._say)
        try:
            arguments = json.loads(rest)
        except ValueError as error:
            self._say(f"that is not JSON: {error}")
            return None
        if not isinstance(arguments, dict):
            self._say("arguments are a JSON object, as {}")
            return None
        return tool, arguments

    def _ask(self, prompt: str) -> str:
        if sys.stdin.isatty():
            return input(prompt)
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        line = line.rstrip("\n")
        self._console.print(f"{prompt}{line}", markup=False, highlight=False)
        return line

    def _say(self, text: str) -> None:
        self._console.print(text, style="yellow", markup=False, highlight=False)

    def _show_prompt(self, prompt: Prompt, before: Prompt | None) -> None:
        if prompt.system_prompt and (before is None or before.system_prompt != prompt.system_prompt):
            self._console.print(Panel(Text(prompt.system_prompt), title="system", border_style="dim"))
        self._console.print(Panel(Text(prompt.prompt), title=f"turn {prompt.turn + 1}", border_style="cyan"))

    def _show_tools(self, tools: tuple[Tool, ...]) -> None:
        grid = Grid.grid(padding=(0, 2))
        for number, tool in enumerate(tools, start=1):
            names = ", ".join(_parameters(tool.input_schema))
            first = tool.description.strip().split("\n", 1)[0]
            grid.add_row(f"[bold]{number}[/]", escape(f"{tool.name}({names})"), escape(first))
        self._console.print(grid)
        self._console.print(HELP, style="dim", highlight=False)

    def _show_result(self, result: ToolResult) -> None:
        if result.error is not None:
            self._console.print(Panel(Text(result.message), title=str(result.error), border_style="red"))
            return
        text = result.text
        try:
            value = json.loads(text)
        except ValueError:
            value = None
        if isinstance(value, dict | list):
            shown: Any = Syntax(json.dumps(value, indent=2, ensure_ascii=False), "json", word_wrap=True)
        else:
            shown = Text(text or "(empty)")
        self._console.print(Panel(shown, title="result", border_style="green"))

    def _show_outcome(self, outcome: Outcome) -> None:
        grid = Grid(title=f"reward {outcome.reward:.3f}", title_style="bold")
        grid.add_column("score of step")
        grid.add_column("", justify="right")
        for step, score in outcome.scores.items():
            grid.add_row(escape(step), f"{score:.3f}")
        self._console.print(grid)


def _parameters(schema: Mapping[str, Any]) -> list[str]:
    """Their names, optional ones with a question mark."""
    required = schema.get("required") or ()
    return [name if name in required else f"{name}?" for name in schema.get("properties") or {}]
