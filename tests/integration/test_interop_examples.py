"""The examples of other frameworks run against the real packages, and say what they should."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.watching import silent_waits, watched

EXAMPLES = Path(__file__).parents[2] / "examples"

SAID = {
    "callable_worker.py": ["2 of 3 reviews say it broke"],
    "langgraph_node.py": [
        "  RunRequested\n",
        "There are 2100. Spend or save?\n",
        "save; counted once each: {'east': 1, 'west': 1}\n",
    ],
    "langgraph_worker.py": [
        "asked: Send this? We are sorry, and send you a new strap.\n",
        "We are sorry, and send you a new strap. Yours, the shop\n",
    ],
    "openai_agents_worker.py": [
        'asked: May desk call refund({"francs":49})?\n',
        "Your 49 francs are on their way.\n",
        "  needs_input: model, model\n  done: tool refund, model\n",
    ],
    "pydantic_ai_worker.py": [
        "{'article': 'lamp', 'francs': 49.0}\n",
        "  model: 1 calls counted\n  tool price: 0 calls counted\n  model: ",
        "the price was looked up 1 time\n",
    ],
}
NEEDED = {"langgraph": "langgraph", "openai": "agents", "pydantic": "pydantic_ai"}


@pytest.mark.parametrize("script", SAID)
def test_an_example_of_another_framework_runs_without_a_warning(
    script: str, tmp_path: Path
) -> None:
    package = NEEDED.get(script.partition("_")[0])
    if package is not None:
        pytest.importorskip(package, reason=f"needs {package}")
    command = [sys.executable, "-W", "error", str(EXAMPLES / script)]
    done = subprocess.run(
        command, env=watched(tmp_path), capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    assert silent_waits(tmp_path) == []
    assert done.stderr == ""
    for said in SAID[script]:
        assert said in done.stdout
