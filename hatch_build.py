"""Refuses to build a wheel or an sdist without the dashboard."""

import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

INDEX = "src/chargehand/server/static/index.html"


class DashboardIsBuilt(BuildHookInterface):
    """Editable installs need no dashboard: `chargehand serve` says how to build it."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - as hatchling calls it
        """Stop the build if the dashboard is missing and nothing says that this is meant."""
        if version == "editable" or os.environ.get("CHARGEHAND_NO_UI") == "1":
            return
        if not (Path(self.root) / INDEX).is_file():
            raise SystemExit(
                f"{INDEX} is missing, so the package would have no dashboard: run `make ui` first "
                "(it needs node 20), or set CHARGEHAND_NO_UI=1 to build without it"
            )
