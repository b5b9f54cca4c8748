"""The HTTP API of `chargehand serve`: runs, live events and the dashboard's static files."""
