"""The storeys of `Supervisor`, from the ground up: each knows those below it only."""
