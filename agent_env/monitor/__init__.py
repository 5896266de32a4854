"""What can be seen of a server and its episodes: metrics, traces, the live page."""
