"""Rows for the text that a model answered a turn with (`agent_prompt_response_verifier`).

A regular expression can take for ever on a text that was made for it, and the text is the policy's. So expressions
are matched in a Python process of their own, which is killed at the deadline.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Sequence
from typing import Any

from agent_env.bundle.steps import ResponseContains, ResponseRegexPresent

__all__ = ["reply_rows"]

_SEARCH = "import json, re, sys; print(json.dumps([bool(re.search(*c)) for c in json.load(sys.stdin)]))"


async def reply_rows(
    criteria: Sequence[ResponseContains | ResponseRegexPresent], reply: str, timeout: float
) -> list[dict[str, Any]]:
    """One row a criterion, in order. timeout: seconds for all expressions together.

    Raises TimeoutError when they aren't through by then, OSError when no process can be started for them.
    """
    searches = [
        (criterion.pattern, reply, _flags(criterion.flags))
        for criterion in criteria
        if isinstance(criterion, ResponseRegexPresent)
    ]
    found = iter(await _search(searches, timeout) if searches else [])
    rows = []
    for criterion in criteria:
        if isinstance(criterion, ResponseContains):
            missing = [needle for needle in criterion.needles if needle not in reply]
            passed, why = not missing, f"missing: {', '.join(missing)}" if missing else "has every needle"
        else:
            passed = next(found)
            why = "matches" if passed else f"no match for {criterion.pattern}"
        rows.append(
            {
                "criterion": criterion.criterion or criterion.type,
                "result": passed,
                "score": float(passed),
                "weight": criterion.weight,
                "justification": why,
            }
        )
    return rows


def _flags(names: Sequence[str] | None) -> int:
    if names is None:
        return int(re.DOTALL)
    flags = re.NOFLAG
    for name in names:
        flags |= re.RegexFlag[name]
    return int(flags)


async def _search(searches: Sequence[tuple[str, str, int]], timeout: float) -> list[bool]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-S", "-c", _SEARCH, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env={}
    )
    try:
        async with asyncio.timeout(timeout):
            output, _ = await process.communicate(json.dumps(searches).encode())
        if process.returncode:
            raise OSError(f"matching the reply ended with status {process.returncode}")
        found: list[bool] = json.loads(output)
        return found
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
