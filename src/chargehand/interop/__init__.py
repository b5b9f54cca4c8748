"""Agents of other frameworks as workers, and a supervisor inside another framework.

Each framework has a package of its own, which imports it when first used: `interop.langgraph`,
`interop.pydantic_ai`, `interop.openai_agents`. Any callable is a worker with `callable_worker`.
"""

from chargehand.interop.callable_worker import callable_worker

__all__ = ["callable_worker"]
