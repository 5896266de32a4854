"""One play of one task: deploy its envs, run its steps, take the model's tool calls, verify, score, tear down."""
