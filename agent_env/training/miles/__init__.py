"""What is Miles' own: the agent function and its hooks, and the rows it plays. Imports nothing of Miles."""
