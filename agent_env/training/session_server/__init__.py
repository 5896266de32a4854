"""A local stand-in for Miles' session server: `agent-env session-server`.

It holds a chat to the rules of the real one, so that an agent function, a bundle or a policy can be tried without a
GPU: behind it is a scripted policy or any OpenAI-compatible endpoint. It makes no tokens to train on.

    POST   /sessions                            -> {"session_id"}; {"policy": NAME} chooses among the server's policies
    POST   /sessions/{id}/v1/chat/completions   as OpenAI's
    GET    /sessions/{id}                       -> {"session_id", "records", "metadata": {"policy", "warnings"}}
    DELETE /sessions/{id}
    POST   /abort_request                       cuts short what is being generated
    GET    /health

The server packages load when the command runs, or with `agent_env.training.session_server.app`.
"""

from agent_env.training.session_server.command import add_arguments, main

__all__ = ["add_arguments", "main"]
