"""Settings that all tests share. There are no fixtures here: each room's tests bring their own."""

import os
import signal
from collections.abc import Generator

import pytest
from hypothesis import settings

# What is started in the background ignores Ctrl-C, and so would all that the tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

IS_CI = os.environ.get("CI") == "true"

settings.register_profile("chargehand", deadline=None, derandomize=IS_CI)
settings.load_profile("chargehand")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _refuse_skip(report)
    return report


def _refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Fail a test that was skipped for want of something, where everything has to be there.

    A machine that lost its strace would otherwise stay green for ever without one real kill.
    """
    if not (IS_CI and report.skipped and isinstance(report.longrepr, tuple)):
        return
    reason = report.longrepr[2].removeprefix("Skipped: ")
    if reason.startswith("needs "):
        report.outcome = "failed"
        report.longrepr = f"skipped although CI=true: {reason}"
