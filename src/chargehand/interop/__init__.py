"""Agents of other frameworks as workers, and a supervisor inside another framework.

Each framework has its own package, which imports the framework on first use: `interop.langgraph`,
`interop.pydantic_ai`, `interop.openai_agents`. `callable_worker` turns any callable into a worker.
"""

from chargehand.interop.callable_worker import callable_worker

__all__ = ["callable_worker"]
