"""The start of a fork server: `python -I -u main.py FD`, FD being its end of the control socket."""

import importlib
import os
import sys
import types

if __name__ == "__main__":
    # A package name of its own: nothing of an env can shadow these modules, nor can they shadow anything of its.
    package = types.ModuleType("_agent_env_inside")
    package.__path__ = [os.path.dirname(os.path.abspath(__file__))]
    sys.modules[package.__name__] = package
    importlib.import_module("_agent_env_inside.server").main(int(sys.argv[1]))
