"""The Python client of the HTTP API."""

from chargehand.client.api_client import Client, RemoteCost, RemotePlan, RemoteResult

__all__ = ["Client", "RemoteCost", "RemotePlan", "RemoteResult"]
