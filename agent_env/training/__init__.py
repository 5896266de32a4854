"""The trainers' side: one rollout over a chat URL and an OpenEnv session. Pulls in no server package."""
