"""Dockerfiles: how the server starts, and why Docker is needed or isn't."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_env.bundle.dockerfile import Dockerfile, read_dockerfile
from agent_env.bundle.problems import Problems

FROM = "FROM python:3.12-slim\n"
CMD = '\nCMD ["python", "server.py"]\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("server.py", "requirements.txt", "data/days.json", "src/main.py", "reqs/prod.txt", "tool.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    return tmp_path


def read(text: str, folder: Path) -> Dockerfile:
    problems = Problems()
    result = read_dockerfile(text, folder, "Dockerfile", problems)
    assert not problems.found
    return result


@pytest.mark.parametrize(
    "middle",
    [
        "",
        "WORKDIR /app\nCOPY . .",
        "WORKDIR /app\nCOPY . /app/",
        "WORKDIR /app\nCOPY --chown=1000:1000 server.py tool.py ./",
        "WORKDIR /app\nCOPY *.py ./",
        "WORKDIR /app\nADD server.py /app/server.py",
        "WORKDIR /app\nCOPY data data\nCOPY data/ ./data/",
        "WORKDIR /app\nCOPY data/days.json data/days.json",
        'WORKDIR /app\nCOPY ["server.py", "."]',
        "WORKDIR /srv\nWORKDIR app\nCOPY server.py .",
        "COPY . /app",
        "RUN pip install --no-cache-dir agent-env",
        "RUN pip install 'agent-env>=0.1' && python -m pip install -U pip",
        "WORKDIR /app\nCOPY requirements.txt .\nRUN --mount=type=cache,target=/cache pip install -r requirements.txt",
        "WORKDIR /app\nCOPY requirements.txt .\nRUN pip3 install -i https://x.example/simple -rrequirements.txt",
        "WORKDIR /app\nCOPY requirements.txt .\nRUN uv pip install --system --requirement=requirements.txt",
        'WORKDIR /app\nCOPY requirements.txt .\nRUN ["pip", "install", "-r", "/app/requirements.txt"]',
        "WORKDIR /app\nRUN mkdir -p /app /data && chown -R nobody /app",
        'VOLUME ["/data"]',
        "RUN groupadd x && \\\n    # a comment\n\n    useradd x",
        "ARG PORT=18765\nEXPOSE ${PORT}\nLABEL a=b\nUSER 1000\nSTOPSIGNAL SIGTERM\nHEALTHCHECK NONE",
    ],
)
def test_files_requirements_and_users_need_no_docker(middle: str, folder: Path) -> None:
    result = read(FROM + middle + CMD, folder)
    assert result.needs_docker is None
    assert result.command == ("python", "server.py")
    assert result.python == "3.12"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("FROM ubuntu:24.04" + CMD, "line 1: its base image is ubuntu:24.04, not python"),
        ("FROM acme/my-python:3" + CMD, "line 1: its base image is acme/my-python:3"),
        ("ARG BASE=node\nFROM $BASE" + CMD, "line 2: its base image is node"),
        (FROM + "FROM python:3.12" + CMD, "line 2: it builds in several stages"),
        (FROM + "RUN apt-get update && apt-get install -y git" + CMD, "line 2: RUN apt-get update"),
        (FROM + "RUN useradd x && curl -O https://x.example" + CMD, "line 2: RUN curl -O https://x.example"),
        (FROM + "RUN pip install httpx" + CMD, "line 2: RUN pip install httpx"),
        (FROM + "RUN pip install agent-environments" + CMD, "line 2: RUN pip install agent-environments"),
        (FROM + "RUN pip install ." + CMD, "line 2: RUN pip install ."),
        (FROM + "RUN pip install -r missing.txt" + CMD, "line 2: RUN pip install -r missing.txt"),
        (FROM + "RUN pip install -r reqs/prod.txt -r requirements.txt" + CMD, "line 2: RUN pip install -r"),
        (FROM + "RUN mkdir /etc/shop" + CMD, "line 2: RUN mkdir /etc/shop"),
        (FROM + "WORKDIR /app\nRUN mkdir -p cache" + CMD, "line 3: RUN mkdir -p cache"),
        (FROM + "RUN echo hi > /etc/motd" + CMD, "line 2: RUN echo hi > /etc/motd"),
        (FROM + "RUN useradd $(whoami)" + CMD, "line 2: RUN useradd $(whoami)"),
        (FROM + 'RUN useradd "x' + CMD, 'line 2: RUN useradd "x'),
        (FROM + "RUN <<EOF\napt-get update\nEOF" + CMD, "line 2: RUN <<EOF"),
        (FROM + "COPY <<EOF /app/x.py\nprint(1)\nEOF" + CMD, "line 2: COPY writes a file of its own"),
        (FROM + "COPY --from=builder /x /x" + CMD, "line 2: COPY --from"),
        (FROM + "ADD https://x.example/f.tgz /app/" + CMD, "line 2: ADD https://x.example/f.tgz downloads"),
        (FROM + "WORKDIR /app\nCOPY src/main.py ." + CMD, "line 3: COPY puts src/main.py at /app/main.py"),
        (FROM + "WORKDIR /app\nCOPY data/ ." + CMD, "line 3: COPY puts data at /app, which is not the folder's own"),
        (FROM + "WORKDIR /app\nCOPY server.py main.py" + CMD, "line 3: COPY puts server.py at /app/main.py"),
        (FROM + "WORKDIR /app\nCOPY . /srv" + CMD, "line 3: it copies files to /srv, and starts in /app"),
        (FROM + "VOLUME /tmp/x" + CMD, "line 2: VOLUME /tmp/x"),
        (FROM + "ONBUILD RUN x" + CMD, "line 2: ONBUILD RUN x"),
        (
            FROM + "CMD python server.py",
            'line 2: CMD python server.py runs in a shell; without Docker it must be CMD ["',
        ),
        (FROM + 'CMD ["fastmcp", "run"]', "line 2: it starts 'fastmcp'"),
        (FROM + 'ENTRYPOINT ["sh", "-c"]' + CMD, "line 3: it starts 'sh'"),
    ],
)
def test_anything_more_needs_docker_and_says_why(text: str, why: str, folder: Path) -> None:
    result = read(text, folder)
    assert result.needs_docker is not None
    assert result.needs_docker.startswith(f"Dockerfile {why}")


def test_the_first_reason_is_told_and_a_long_one_is_cut(folder: Path) -> None:
    result = read(FROM + f"RUN apt-get install {'x ' * 500}\nVOLUME /data" + CMD, folder)
    assert result.needs_docker is not None
    assert result.needs_docker.startswith("Dockerfile line 2: RUN apt-get install x")
    assert len(result.needs_docker) < 250


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("python", None),
        ("python:3", None),
        ("python:3.11", "3.11"),
        ("python:3.13.1-slim-bookworm", "3.13"),
        ("registry.example:5000/library/python:3.11-slim@sha256:c20888", "3.11"),
        ("--platform=linux/amd64 python:3.12-alpine AS base", "3.12"),
    ],
)
def test_the_base_images_tag_says_the_python_version(image: str, version: str | None, folder: Path) -> None:
    result = read(f"FROM {image}{CMD}", folder)
    assert (result.python, result.needs_docker) == (version, None)


def test_environment_variables_are_expanded(folder: Path) -> None:
    text = r"""FROM python:3.12
ARG MODE=fast
ENV A=1 B="two words" C=${MODE}-$A
ENV OLD form of it
ENV D=${NONE:-other}${A:+yes} E=\$A F=$NONE
WORKDIR /srv/$A
"""
    result = read(text + CMD, folder)
    expected = {"A": "1", "B": "two words", "C": "fast-1", "OLD": "form of it", "D": "otheryes", "E": "$A", "F": ""}
    assert result.environ == expected
    assert result.workdir == "/srv/1"


@pytest.mark.parametrize(
    ("lines", "command"),
    [
        ('CMD ["python", "-u", "server.py"]', ("python", "-u", "server.py")),
        ('ENTRYPOINT ["python"]\nCMD ["server.py", "--x"]', ("python", "server.py", "--x")),
        ('CMD ["x"]\ncmd ["python3", "-m", "src.main"]', ("python", "-m", "src.main")),
        ('ENTRYPOINT ["/usr/local/bin/python3.12", "server.py"]', ("python", "server.py")),
        (
            'WORKDIR /app\nCMD ["python", "-u", "/app/src/main.py", "/app/x.py"]',
            ("python", "-u", "src/main.py", "/app/x.py"),
        ),
    ],
)
def test_entrypoint_and_command_make_the_command(lines: str, command: tuple[str, ...], folder: Path) -> None:
    result = read(FROM + lines, folder)
    assert (result.command, result.needs_docker) == (command, None)


def test_the_workdir_is_where_the_files_are_when_none_is_set(folder: Path) -> None:
    assert read(FROM + "COPY . /srv/env" + CMD, folder).workdir == "/srv/env"


def test_folders_that_it_makes_are_writable(folder: Path) -> None:
    text = FROM + "WORKDIR /app\nRUN mkdir -p /data/in /app && mkdir /srv\nVOLUME /data/in /out" + CMD
    assert read(text, folder).writable == ("/data/in", "/srv", "/out")
    assert read(text + "RUN apt-get update", folder).writable == ()


def test_the_requirements_file_is_the_one_that_is_installed(folder: Path) -> None:
    text = FROM + "WORKDIR /app\nCOPY reqs reqs\nRUN pip install -r reqs/prod.txt" + CMD
    result = read(text, folder)
    assert (result.requirements, result.needs_docker) == ("reqs/prod.txt", None)


def test_a_continued_line_is_told_by_its_first(folder: Path) -> None:
    assert read(FROM + "RUN useradd x && \\\n  apt-get update" + CMD, folder).needs_docker == (
        "Dockerfile line 2: RUN apt-get update"
    )
