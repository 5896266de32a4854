"""Rows survive readers that make columns of them, as `datasets.load_dataset` does with Apache Arrow."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from agent_env.training.row import read_row
from tests.miles.doubles import TaskServer, task
from tests.miles.writer import rows, write
from tests.peers import peer_python
from tests.training.row import END_TURN, openai_tools, tool

pytestmark = [pytest.mark.peers, pytest.mark.timeout(600)]

ROUND_TRIP = """
import json, sys
import pyarrow.json, pyarrow.parquet
table = pyarrow.json.read_json(sys.argv[1])
pyarrow.parquet.write_table(table, sys.argv[2])
print(json.dumps(pyarrow.parquet.read_table(sys.argv[2]).to_pylist()))
"""


async def test_tools_and_settings_survive_arrow_and_parquet(tmp_path: Path) -> None:
    """Cases 94 and 95: schemas that differ, mix types or are empty aren't mixed up; ids are text."""
    odd = {
        "name": "odd",
        "description": "",
        "input_schema": {
            "type": "object",
            "properties": {"level": {"type": ["string", "null"]}, "mode": {"enum": [1, "two", None]}},
        },
    }
    bare = {"name": "bare", "description": "", "input_schema": {"type": "object", "properties": {}}}
    toolsets = {"one": [[tool("add"), END_TURN]], "two": [[odd, bare, END_TURN]]}
    listed = [task(0, id=7), task(1, id="7", toolset="two", system_prompt=None), task(2, toolset="two")]
    ran = await write(TaskServer({"all": listed}, toolsets=toolsets), tmp_path)
    assert ran.code == 0, ran
    python = peer_python("pyarrow==21.0.0")
    path = tmp_path / "all.jsonl"
    out = subprocess.run(  # noqa: ASYNC221
        [python, "-c", ROUND_TRIP, path, tmp_path / "rows.parquet"], capture_output=True, text=True, check=True
    ).stdout
    for written, read in zip(rows(path), json.loads(out), strict=True):
        assert read_row(read["messages"], read["metadata"]) == read_row(written["messages"], written["metadata"])
        toolset = toolsets[listed[read["metadata"]["index"]]["toolset"]][0]
        assert list(read_row(read["messages"], read["metadata"]).tools) == openai_tools(toolset)
        assert isinstance(read["metadata"]["task_id"], str)
