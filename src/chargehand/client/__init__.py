"""The Python client of the HTTP API."""

from chargehand.client.api_client import Client, RemoteResult

__all__ = ["Client", "RemoteResult"]
