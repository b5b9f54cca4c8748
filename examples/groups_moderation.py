"""Content moderation by a group: every post goes to all reviewers at once, and the strictest measure is taken.

Three reviewers check a post against one rule each. A fourth is too slow for long posts, and the fifth tries to
change the policy. The broadcast still returns the other replies within its timeout, and names the missing members
with the reason. The policy is a block that all may read and only the board may write.
"""

import asyncio
import json
import re
import sys
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

import chargehand as ch
from chargehand.facts.board import BlockRefused
from chargehand.patterns.groups import Group, RoundRobinManager, SharedBlock
from chargehand.patterns.groups.result import Replies

DATA = Path(__file__).parent / "groups_data"
CONSOLE = Console(highlight=False)
#: seconds between posts where people watch
PACE = 0.3 if sys.stdout.isatty() else 0.0
PATIENCE = timedelta(seconds=0.5)
POSTS: list[dict[str, Any]] = json.loads((DATA / "posts.json").read_text(encoding="utf-8"))

SPAM = re.compile(r"www\.|click|(?:\b(\w+)\b\W+)(?:\1\W+)+|!!!", re.IGNORECASE)
INSULT = re.compile(
    r"\b(?:you are an?|the|what an?) (?:\w+ )?(?:idiot|moron)\b(?! i\b)", re.IGNORECASE
)
PRIVATE = re.compile(r"\b\d{3}[ -]\d{4}|\b\d+ \w+ (?:lane|street|road)\b", re.IGNORECASE)


def reviewer(name: str, kind: str, pattern: re.Pattern[str]) -> ch.FunctionWorker:
    """A member that checks a post against one rule of the policy."""

    async def review(brief: ch.Brief) -> dict[str, str]:
        policy = (await brief.board.read("policy")).value[kind]
        post = POSTS[int(brief.task.description.split()[-1]) - 1]
        found = pattern.search(post["text"])
        if found is None:
            return {"verdict": "keep"}
        return {"verdict": policy["action"], "rule": policy["rule"], "because": found[0].strip()}

    return ch.FunctionWorker(review, name, f"Looks for {kind}")


@ch.worker("sleeper", "Falls asleep over long posts")
async def sleeper(brief: ch.Brief) -> dict[str, str]:
    if len(POSTS[int(brief.task.description.split()[-1]) - 1]["text"]) > 65:
        await asyncio.sleep(3600)
    return {"verdict": "keep"}


@ch.worker("reformer", "Would rather change the policy")
async def reformer(brief: ch.Brief) -> dict[str, str]:
    await brief.board.write("policy", {})
    return {"verdict": "keep"}


def group() -> Group:
    policy = json.loads((DATA / "policy.json").read_text(encoding="utf-8"))
    return Group(
        [
            reviewer("spotter", "spam", SPAM),
            reviewer("listener", "insult", INSULT),
            reviewer("guardian", "private", PRIVATE),
            sleeper,
            reformer,
        ],
        manager=RoundRobinManager(),
        name="moderation",
        blocks=[SharedBlock("policy", policy, writers=["board"])],
    )


def decided(replies: Replies) -> tuple[str, str]:
    """The decision about a post and its reason: the strictest measure that a reviewer asks for."""
    asked = [said for said in replies.said.values() if said["verdict"] != "keep"]
    for action in ("remove", "hide"):
        for said in asked:
            if said["verdict"] == action:
                return action, f"{said['rule']} ({said['because']!r})"
    return "keep", ""


async def moderate() -> Counter[str]:
    done: Counter[str] = Counter()
    async with group() as crew:
        for post in POSTS:
            replies = await crew.broadcast(
                f"What is to be done with post {post['id']}", timeout=PATIENCE
            )
            action, why = decided(replies)
            done[action] += 1
            done["no answer"] += len(replies.failed)
            CONSOLE.print(f"  [bold cyan]{action:<6}[/] {escape(post['text'])}")
            if why:
                CONSOLE.print(f"         {escape(why)}")
            CONSOLE.print(f"         {len(replies)} answers; none from {', '.join(replies.failed)}")
            await asyncio.sleep(PACE)
        board = [entry.event async for entry in crew.journal.boards.read(crew.blocks.home)]
        done["refused"] = sum(isinstance(event, BlockRefused) for event in board)
        done["versions"] = (await crew.board(crew.blocks.home).read("policy")).version
    return done


def main() -> Counter[str]:
    CONSOLE.print(f"{len(POSTS)} posts, five reviewers, half a second for each:\n")
    done = asyncio.run(moderate())
    CONSOLE.print(f"\n[bold]Kept {done['keep']}, hid {done['hide']}, removed {done['remove']}.[/]")
    CONSOLE.print(f"{done['no answer']} answers did not come, and cost no other.")
    CONSOLE.print(
        f"The policy is still at version {done['versions']}: {done['refused']} attempts to write it were "
        "denied, and written down."
    )
    CONSOLE.print("\nNext: docs/groups.md; or write a post of your own into groups_data/posts.json")
    return done


if __name__ == "__main__":
    main()
