"""The storeys of `Schedule`, from the ground up: each knows those below it only."""
