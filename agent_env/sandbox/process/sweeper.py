"""What sweeps up after a server that is killed hard: a shell that waits for its end.

The kernel ends all its envs, but keeps the folders of their cgroups and their temporary ones. The end of the shell's
standard input means that the server is gone, since only the server holds the other end. Where there is no shell, or it
is killed as well, the next server's start removes what is left.
"""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Sequence
from pathlib import Path

__all__ = ["NAME", "Sweeper"]

NAME = "agent-env-sweeper"
"""What the shell is called in a list of processes."""

_SCRIPT = """
trap '' HUP INT QUIT TERM
read -r _ && exit
tries=0
while read -r _ _ _ parent _ </proc/$$/stat && [ "$parent" = "$PPID" ]; do
    tries=$((tries + 1))
    [ $tries -lt 50 ] || exit
    sleep 0.1
done
temporary=$1
shift
tries=0
while [ $tries -lt 100 ]; do
    left=
    if [ -n "$temporary" ]; then
        rm -rf "$temporary"
        rmdir "${temporary%/*}"
        [ ! -e "$temporary" ] || left=1
    fi
    for owner; do
        rmdir "$owner"/*/ "$owner" "${owner%/*}"
        [ ! -e "$owner" ] || left=1
    done
    [ -n "$left" ] || exit
    tries=$((tries + 1))
    sleep 0.1
done
"""
"""Arguments: a temporary folder or "", and a server's folders of cgroups, which can be removed once the processes in
them are gone. Of the folders that hold these, each is removed if no other server has one there.

A process that is being killed closes its files a moment before it counts as ended, so that its children get another
parent; one that goes on loses nothing."""

_END_SECONDS = 2.0

_log = logging.getLogger(__name__)


class Sweeper:
    """Waits in a session of its own. `close` it when all is removed."""

    def __init__(self, temporary: Path | None, cgroups: Sequence[Path]) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        if temporary is None and not cgroups:
            return
        try:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _SCRIPT, NAME, str(temporary or ""), *map(str, cgroups)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
                env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
            )
        except OSError as error:
            _log.debug("nothing sweeps up if this server is killed hard: %s", error)

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def close(self) -> None:
        """Tell it that nothing is left to do, and wait for its end: some ms. Idempotent."""
        process, self._process = self._process, None
        if process is None:
            return
        try:
            process.communicate(b"done\n", timeout=_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
