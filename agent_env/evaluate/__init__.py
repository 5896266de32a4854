"""`agent-env eval` and `agent-env compare`: play a split through the rollout that training uses, and report."""
