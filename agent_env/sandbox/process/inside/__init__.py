"""What runs on the other side of the wall: the fork server and the children it forks.

Started under the env's own Python by its path (`main.py`), so these modules import the standard library and each other
and nothing else of agent_env. `main.py` loads them under a name of their own, which no env's module can shadow.
"""
