"""For `agent-env probe`: the rules of baselines.py that show what a day is worth, played as a model plays."""

from agent_env.training import policies

POLICIES = {
    "oracle": policies.POLICIES["optimum"],
    "greedy": policies.POLICIES["greedy"],
    "idle": policies.POLICIES["idle"],
}
SPLIT = "eval"
SCORES = {"oracle": 1.0, "greedy": 0.763, "idle": 0.2, "no-op": 0.0}
