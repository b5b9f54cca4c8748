"""What once went wrong is tried first."""

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: "once_broke" not in item.name)  # stable: the rest keeps its order
