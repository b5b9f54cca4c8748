"""Workers that were built with something else, and a supervisor inside something else.

Each framework has a room of its own, which imports it when first used: `interop.langgraph`,
`interop.pydantic_ai`, `interop.openai_agents`. Any callable is a worker with `callable_worker`.
"""

from chargehand.interop.callable_worker import callable_worker

__all__ = ["callable_worker"]
