"""What a machine may lack."""

import shutil


class Needs(Exception):
    """The machine lacks something without which a trial would prove nothing; begins with "needs"."""


def require(program: str) -> None:
    if shutil.which(program) is None:
        raise Needs(f"needs {program}")
