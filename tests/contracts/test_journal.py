"""What every journal promises, whatever it is kept in."""

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from chargehand.errors import (
    JournalDamaged,
    JournalError,
    KeyConflict,
    NotJSON,
    NotLeading,
    UnknownRun,
    UsageError,
)
from chargehand.facts.events import (
    Event,
    ProgressNoted,
    RunFinished,
    RunRequested,
    RunStatus,
    TaskAdded,
)
from chargehand.facts.limits import Limits
from chargehand.facts.plan import Task
from chargehand.facts.value import digest_of
from chargehand.journal.base import BEATS, Entry, Journal, Key, Mail, Tail

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def note(text: str, minute: int = 0) -> ProgressNoted:
    at = NOON + timedelta(minutes=minute)
    return ProgressNoted(at=at, task="t1", attempt=1, text=text)


def notes(*texts: str) -> list[Event]:
    return [note(text) for text in texts]


def finished(minute: int = 0) -> RunFinished:
    return RunFinished(at=NOON + timedelta(minutes=minute), status=RunStatus.SUCCEEDED)


def request(run: str, *, reuses: str = "") -> RunRequested:
    return RunRequested(
        at=NOON,
        run=run,
        request="",
        limits=Limits(),
        seed=1,
        rules=1,
        crew="",
        reuses=reuses,
    )


def mail(key: str, body: bytes = b"{}", subject: str = "cancel") -> Mail:
    return Mail(key=key, stream="run", subject=subject, body=body)


async def entries_of(journal: Journal, stream: str = "run", after: int = 0) -> list[Entry]:
    return [entry async for entry in journal.read(stream, after)]


async def texts_of(journal: Journal, stream: str = "run") -> list[str]:
    return [entry.event.text async for entry in journal.read(stream)]  # type: ignore[union-attr]  # only notes are stored here


async def test_events_are_read_in_the_order_they_were_appended(journal: Journal) -> None:
    await journal.append("run", notes("a", "b"))
    await journal.append("run", notes("c"))
    entries = await entries_of(journal)
    assert [entry.event for entry in entries] == notes("a", "b", "c")
    assert [entry.seq for entry in entries] == [1, 2, 3]
    assert {entry.stream for entry in entries} == {"run"}


async def test_append_returns_the_place_of_the_last_event(journal: Journal) -> None:
    position = await journal.append("run", notes("a", "b", "c"))
    assert (position.stream, position.seq, position.is_new) == ("run", 3, True)


async def test_appending_nothing_stores_nothing(journal: Journal) -> None:
    await journal.append("run", notes("a"))
    position = await journal.append("run", [])
    assert position.seq == 1
    assert len(await entries_of(journal)) == 1


async def test_streams_are_numbered_each_for_itself(journal: Journal) -> None:
    await journal.append("run", notes("a", "b"))
    position = await journal.append("board", notes("c"))
    assert position.seq == 1
    assert await texts_of(journal, "board") == ["c"]


async def test_reading_after_a_number_starts_behind_it(journal: Journal) -> None:
    await journal.append("run", notes("a", "b", "c"))
    assert [entry.seq for entry in await entries_of(journal, after=1)] == [2, 3]
    assert await entries_of(journal, after=3) == []
    assert await entries_of(journal, after=9) == []


async def test_reading_a_part_gives_the_same_entries_as_reading_all(journal: Journal) -> None:
    await journal.append("run", notes(*"abcdef"))
    whole = await entries_of(journal)
    assert await entries_of(journal, after=4) == whole[4:]


async def test_reading_stops_at_what_was_newest_when_it_began(journal: Journal) -> None:
    await journal.append("run", notes("a", "b"))
    seen = []
    async for entry in journal.read("run"):
        seen.append(entry.seq)
        await journal.append("run", notes("later"))
    assert seen == [1, 2]


async def test_a_long_stream_is_read_whole(journal: Journal) -> None:
    await journal.append("run", notes(*(str(number) for number in range(2500))))
    assert await texts_of(journal) == [str(number) for number in range(2500)]


async def test_a_stream_of_many_appends_is_read_from_any_number_on(journal: Journal) -> None:
    """Wherever a journal cuts a long stream into pieces, no reader can tell."""
    written = [str(n) for n in range(2_500)]
    for first in range(0, 2_500, 500):
        await journal.append("r", notes(*written[first : first + 500]))
    for after in (0, 1_023, 1_024, 2_047, 2_048, 2_499):
        entries = [entry async for entry in journal.read("r", after)]
        assert [entry.event.text for entry in entries] == written[after:]  # type: ignore[union-attr]  # notes all


async def test_large_events_are_read_whole(journal: Journal) -> None:
    texts = [str(number) * 60_000 for number in range(1, 9)]
    for start in range(0, 8, 2):
        await journal.append("run", notes(*texts[start : start + 2]))
    assert await texts_of(journal) == texts


async def test_reading_a_stream_that_is_not_there_says_so(journal: Journal) -> None:
    with pytest.raises(UnknownRun, match="nowhere"):
        await entries_of(journal, "nowhere")


async def test_events_come_back_equal_with_every_field(journal: Journal) -> None:
    task = Task(id="t1", description='Ünïcode ✓ \0 "quoted"', worker="w", needs=["t0"])
    await journal.append("run", [TaskAdded(at=NOON, task=task)])
    [entry] = await entries_of(journal)
    assert entry.event == TaskAdded(at=NOON, task=task)


async def test_entries_name_their_author_and_epoch(journal: Journal) -> None:
    await journal.append("run", notes("before anybody leads"))
    epoch = await journal.leases.lead("run")
    await journal.append("run", notes("led"), epoch=epoch)
    entries = await entries_of(journal)
    assert [entry.epoch for entry in entries] == [0, epoch]
    assert {entry.author for entry in entries} == {journal.leases.node}


async def test_hashes_depend_on_all_that_went_before(journal: Journal) -> None:
    await journal.append("one", notes("a", "b"))
    await journal.append("two", notes("x", "b"))
    hashes = [entry.hash for name in ("one", "two") for entry in await entries_of(journal, name)]
    assert len(set(hashes)) == 4


async def test_an_append_with_the_epoch_of_its_leader_is_stored(journal: Journal) -> None:
    epoch = await journal.leases.lead("run")
    position = await journal.append("run", notes("a"), epoch=epoch)
    assert position.seq == 1


async def test_an_append_with_another_epoch_is_refused_and_stores_nothing(
    journal: Journal,
) -> None:
    epoch = await journal.leases.lead("run")
    await journal.append("run", notes("a"), epoch=epoch)
    for wrong in (epoch - 1, epoch + 1):
        with pytest.raises(NotLeading, match="run"):
            await journal.append("run", notes("b"), epoch=wrong)
    assert await texts_of(journal) == ["a"]


async def test_an_append_with_an_epoch_to_a_stream_nobody_leads_is_refused(
    journal: Journal,
) -> None:
    with pytest.raises(NotLeading):
        await journal.append("run", notes("a"), epoch=1)
    with pytest.raises(UnknownRun):
        await entries_of(journal)


async def test_a_refused_append_does_not_stop_those_beside_it(journal: Journal) -> None:
    epoch = await journal.leases.lead("run")
    asked = [
        journal.append("run", notes(str(number)), epoch=epoch + number % 2) for number in range(20)
    ]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert sum(isinstance(answer, NotLeading) for answer in answers) == 10
    assert await texts_of(journal) == [str(number) for number in range(0, 20, 2)]


async def test_the_same_key_with_the_same_body_is_stored_once(journal: Journal) -> None:
    key = Key("submit", "k1", "digest")
    first = await journal.append("run", notes("a"), key=key)
    second = await journal.append("other", notes("a"), key=key)
    assert (first.is_new, second.is_new) == (True, False)
    assert (second.stream, second.seq) == ("run", 1)
    assert await texts_of(journal) == ["a"]
    with pytest.raises(UnknownRun):
        await entries_of(journal, "other")


async def test_the_same_key_with_another_body_is_a_conflict(journal: Journal) -> None:
    await journal.append("run", notes("a"), key=Key("submit", "k1", "digest"))
    with pytest.raises(KeyConflict, match="k1"):
        await journal.append("run", notes("b"), key=Key("submit", "k1", "another"))
    assert await texts_of(journal) == ["a"]


async def test_keys_of_two_scopes_are_two_keys(journal: Journal) -> None:
    for scope in ("submit", "claim"):
        position = await journal.append("run", notes(scope), key=Key(scope, "k1", scope))
        assert position.is_new


async def test_one_key_used_by_many_at_once_is_stored_once(
    journal: Journal, neighbour: Journal
) -> None:
    key = Key("submit", "k1", "digest")
    positions = await asyncio.gather(
        *(which.append("run", notes("a"), key=key) for which in [journal, neighbour] * 10)
    )
    assert sum(position.is_new for position in positions) == 1
    assert {position.seq for position in positions} == {1}
    assert await texts_of(journal) == ["a"]


async def test_a_repeated_key_gets_its_first_answer_even_from_a_leader_that_was_replaced(
    journal: Journal,
) -> None:
    epoch = await journal.leases.lead("run")
    key = Key("run", "k1", "digest")
    await journal.append("run", notes("a"), epoch=epoch, key=key)
    await journal.leases.lead("run")
    position = await journal.append("run", notes("a"), epoch=epoch, key=key)
    assert (position.seq, position.is_new) == (1, False)


async def test_mail_is_read_oldest_first_until_it_is_taken(journal: Journal) -> None:
    assert await journal.mail.post(mail("k1", b"one"))
    assert await journal.mail.post(mail("k2", b"two"))
    first, second = await journal.mail.unread()
    assert (first.key, first.stream, first.subject, first.body) == ("k1", "run", "cancel", b"one")
    await journal.append("run", notes("took it"), taking=[first.id])
    assert await journal.mail.unread() == [second]


async def test_mail_is_kept_once_however_often_it_is_posted(journal: Journal) -> None:
    assert await journal.mail.post(mail("k1"))
    assert not await journal.mail.post(mail("k1"))
    [posted] = await journal.mail.unread()
    await journal.append("run", notes("took it"), taking=[posted.id])
    assert not await journal.mail.post(mail("k1"))
    assert await journal.mail.unread() == []


async def test_mail_with_a_used_key_and_another_body_is_a_conflict(journal: Journal) -> None:
    await journal.mail.post(mail("k1", b"one"))
    for other in (mail("k1", b"two"), mail("k1", b"one", subject="answer")):
        with pytest.raises(KeyConflict, match="k1"):
            await journal.mail.post(other)


async def test_mail_that_is_taken_already_refuses_the_whole_append(journal: Journal) -> None:
    await journal.mail.post(mail("k1"))
    await journal.mail.post(mail("k2"))
    first, second = await journal.mail.unread()
    await journal.append("run", notes("a"), taking=[first.id])
    with pytest.raises(KeyConflict):
        await journal.append("run", notes("b"), taking=[second.id, first.id])
    assert await texts_of(journal) == ["a"]
    assert await journal.mail.unread() == [second]


async def test_mail_that_never_was_cannot_be_taken(journal: Journal) -> None:
    with pytest.raises(KeyConflict):
        await journal.append("run", notes("a"), taking=[77])


async def test_mail_is_not_taken_by_an_append_that_is_refused(journal: Journal) -> None:
    epoch = await journal.leases.lead("run")
    await journal.mail.post(mail("k1"))
    [posted] = await journal.mail.unread()
    with pytest.raises(NotLeading):
        await journal.append("run", notes("a"), epoch=epoch + 1, taking=[posted.id])
    assert await journal.mail.unread() == [posted]


async def test_mail_taken_by_many_at_once_is_taken_once(journal: Journal) -> None:
    await journal.mail.post(mail("k1"))
    [posted] = await journal.mail.unread()
    answers = await asyncio.gather(
        *(journal.append("run", notes("a"), taking=[posted.id]) for _ in range(10)),
        return_exceptions=True,
    )
    assert sum(isinstance(answer, KeyConflict) for answer in answers) == 9
    assert await texts_of(journal) == ["a"]


async def wait_for_mail(journal: Journal) -> Sequence[Mail]:
    while not (unread := await journal.mail.unread()):
        await journal.mail.wait_changed()
    return unread


async def test_who_waits_for_mail_is_woken_by_mail_of_its_own_process(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "chargehand.journal.change_signal.PATIENCE", 600
    )  # no help from waking in vain
    waiting = asyncio.create_task(wait_for_mail(journal))
    await asyncio.sleep(0)
    await journal.mail.post(mail("k1"))
    [posted] = await asyncio.wait_for(waiting, 10)
    assert posted.key == "k1"


async def test_who_waits_for_mail_is_woken_by_mail_of_another_node(
    journal: Journal, neighbour: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "chargehand.journal.change_signal.PATIENCE", 600
    )  # no help from waking in vain
    waiting = asyncio.create_task(wait_for_mail(journal))
    await asyncio.sleep(0)
    await neighbour.mail.post(mail("k1"))
    [posted] = await asyncio.wait_for(waiting, 10)
    assert posted.key == "k1"


async def test_leading_makes_a_stream_that_is_not_listed_before_its_first_event(
    journal: Journal,
) -> None:
    assert await journal.leases.lead("run") == 1
    assert await journal.heads() == []
    assert await entries_of(journal) == []


async def test_leading_again_gives_a_new_epoch_and_ends_the_old_one(journal: Journal) -> None:
    first = await journal.leases.lead("run")
    second = await journal.leases.lead("run")
    assert second == first + 1
    with pytest.raises(NotLeading):
        await journal.append("run", notes("late"), epoch=first)


async def test_a_stream_led_by_a_living_node_is_refused_to_others_and_the_holder_named(
    journal: Journal, neighbour: Journal
) -> None:
    await journal.leases.lead("run")
    with pytest.raises(NotLeading, match=journal.leases.node):
        await neighbour.leases.lead("run")
    assert await neighbour.leases.lead("another run") == 1


async def test_two_nodes_never_append_with_one_epoch(journal: Journal, neighbour: Journal) -> None:
    epoch = await journal.leases.lead("run")
    with pytest.raises(NotLeading):
        await neighbour.append("run", notes("not mine"), epoch=epoch)


async def test_a_released_stream_can_be_led_by_another_at_once(
    journal: Journal, neighbour: Journal
) -> None:
    epoch = await journal.leases.lead("run")
    await journal.append("run", notes("a"), epoch=epoch)
    await journal.leases.release("run", epoch)
    later = await neighbour.leases.lead("run")
    assert later == epoch + 1
    with pytest.raises(NotLeading):
        await journal.append("run", notes("late"), epoch=epoch)
    await neighbour.append("run", notes("b"), epoch=later)
    assert await texts_of(journal) == ["a", "b"]


async def test_releasing_an_epoch_that_is_over_changes_nothing(journal: Journal) -> None:
    old = await journal.leases.lead("run")
    new = await journal.leases.lead("run")
    await journal.leases.release("run", old)
    await journal.append("run", notes("still leading"), epoch=new)


async def test_a_closed_node_leaves_its_streams_to_others(
    journal: Journal, neighbour: Journal
) -> None:
    epoch = await journal.leases.lead("run")
    await journal.close()
    assert await neighbour.leases.lead("run") == epoch + 1


async def test_a_lease_is_valid_from_leading_until_closing(journal: Journal) -> None:
    assert not journal.leases.is_valid()
    await journal.leases.lead("run")
    assert journal.leases.is_valid()
    await journal.close()
    assert not journal.leases.is_valid()


async def test_a_blob_is_kept_under_the_digest_of_its_bytes(
    journal: Journal, neighbour: Journal
) -> None:
    data = bytes(range(256)) * 400
    digest = await journal.blobs.put(data)
    assert digest == digest_of(data)
    assert await journal.blobs.put(data) == digest
    assert await neighbour.blobs.get(digest) == data


async def test_an_empty_blob_is_a_blob(journal: Journal) -> None:
    assert await journal.blobs.get(await journal.blobs.put(b"")) == b""


async def test_a_blob_that_is_not_there_is_damage(journal: Journal) -> None:
    with pytest.raises(JournalDamaged, match=digest_of(b"never put")):
        await journal.blobs.get(digest_of(b"never put"))


async def test_blobs_put_many_times_at_once_are_kept(journal: Journal) -> None:
    digests = await asyncio.gather(*(journal.blobs.put(bytes([n % 3]) * 100) for n in range(12)))
    assert len(set(digests)) == 3


async def test_heads_list_streams_with_the_one_that_changed_last_first(journal: Journal) -> None:
    await journal.append("early", [note("a", 1)])
    await journal.append("late", [note("a", 3)])
    await journal.append("middle", [note("a", 2), note("b", 2)])
    heads = await journal.heads()
    assert [head.stream for head in heads] == ["late", "middle", "early"]
    assert [head.seq for head in heads] == [1, 2, 1]


async def test_a_head_tells_the_newest_state_of_its_stream(journal: Journal) -> None:
    epoch = await journal.leases.lead("run")
    await journal.append("run", [note("a", 1)], epoch=epoch)
    await journal.append("run", [note("b", 5)], epoch=epoch)
    [head] = await journal.heads()
    assert (head.epoch, head.owner) == (epoch, journal.leases.node)
    assert (head.began_at, head.changed_at) == (note("", 1).at, note("", 5).at)
    assert not head.is_ended
    await journal.append("run", [finished(6)], epoch=epoch)
    await journal.leases.release("run", epoch)
    [head] = await journal.heads()
    assert head.is_ended
    assert head.owner == ""


async def forget(journal: Journal, *runs: str, known: Sequence[str] = ()) -> bool:
    is_done = await journal.storage.forget(runs, known=known)
    async for _ in journal.storage.sweep():
        pass
    return is_done


async def test_forgetting_a_run_leaves_only_its_head(journal: Journal) -> None:
    await journal.append("old", [note("a", 1), finished(2)])
    await journal.append("fresh", [note("a", 1), finished(20)])
    await journal.append("open", [note("a", 1)])
    assert await forget(journal, "old", known=["open"])
    heads = {head.stream: head for head in await journal.heads()}
    assert {name for name, head in heads.items() if head.is_forgotten} == {"old"}
    assert heads["old"].seq == 2
    assert len(await entries_of(journal, "fresh")) == 2
    assert len(await entries_of(journal, "open")) == 1


async def test_a_forgotten_stream_can_be_neither_read_nor_continued(journal: Journal) -> None:
    await journal.append("old", [finished()])
    assert await forget(journal, "old")
    with pytest.raises(UnknownRun, match="retention"):
        await entries_of(journal, "old")
    with pytest.raises(UnknownRun):
        await journal.append("old", notes("more"))
    with pytest.raises(UnknownRun):
        await journal.leases.lead("old")
    assert not await forget(journal, "old")


async def test_a_run_that_is_open_or_unknown_is_not_forgotten(journal: Journal) -> None:
    await journal.append("open", notes("a"))
    assert not await forget(journal, "open", known=["open"])
    assert not await forget(journal, "nowhere", known=["open"])
    assert await texts_of(journal, "open") == ["a"]


async def test_several_runs_are_forgotten_together_or_not_at_all(
    journal: Journal, neighbour: Journal
) -> None:
    """A nested run that has no end of its own goes with the run above it, unless somebody leads it."""
    await journal.append("top", [finished()])
    epoch = await neighbour.leases.lead("below")
    await neighbour.append("below", notes("a"), epoch=epoch)
    assert not await forget(journal, "top", "below", known=["below"])
    assert len(await entries_of(journal, "top")) == 1
    await neighbour.leases.release("below", epoch)
    assert await forget(journal, "top", "below", known=["below"])
    assert await journal.heads(forgotten=False) == []
    assert all(head.is_ended for head in await journal.heads())


async def test_nothing_is_forgotten_while_a_run_is_open_that_may_need_it(
    journal: Journal, neighbour: Journal
) -> None:
    await journal.append("old", [finished()])
    epoch = await neighbour.leases.lead("new")
    assert not await forget(journal, "old")  # it has begun, and has not said yet what it needs
    await neighbour.append("new", [request("new", reuses="old")], epoch=epoch)
    assert not await forget(journal, "old")
    await neighbour.append("new", [finished()], epoch=epoch)
    assert await forget(journal, "old")


async def test_runs_that_need_nothing_of_it_keep_no_run(
    journal: Journal, neighbour: Journal
) -> None:
    await journal.append("old", [finished()])
    for name in ("one", "two"):
        epoch = await neighbour.leases.lead(name)
        await neighbour.append(name, [request(name, reuses="another")], epoch=epoch)
    assert await forget(journal, "old", known=["one"])


async def test_the_events_of_a_long_forgotten_run_are_cleared_away_in_pieces(
    journal: Journal,
) -> None:
    await journal.append("old", [*notes(*map(str, range(1200))), finished()])
    before = await journal.storage.used()
    assert await forget(journal, "old")
    assert await journal.storage.used() < before / 3


async def test_sizes_grow_with_what_runs_hold(journal: Journal) -> None:
    await journal.append("small", notes("a"))
    await journal.append("large", notes("a" * 10_000))
    sizes = await journal.storage.sizes(["small", "large", "nowhere"])
    assert sizes["large"] - sizes["small"] >= 9_000
    assert sizes["nowhere"] == 0


async def test_a_blob_put_lately_survives_the_forgetting_of_its_run(journal: Journal) -> None:
    """Somebody may have been told that it is there, and be about to name it."""
    digest = await journal.blobs.put(b"shared")
    await journal.append("old", [note(f"names {digest}"), finished()])
    await forget(journal, "old")
    assert await journal.blobs.get(digest) == b"shared"


async def test_appends_of_many_tasks_make_one_gapless_chain(journal: Journal) -> None:
    await asyncio.gather(
        *(journal.append("run", notes(f"{number}a", f"{number}b")) for number in range(100))
    )
    entries = await entries_of(journal)
    assert [entry.seq for entry in entries] == list(range(1, 201))
    texts = await texts_of(journal)
    assert all(a[:-1] == b[:-1] for a, b in zip(texts[::2], texts[1::2], strict=True))


async def test_two_nodes_append_to_one_stream_without_gaps(
    journal: Journal, neighbour: Journal
) -> None:
    await asyncio.gather(
        *(which.append("board", notes("a")) for which in [journal, neighbour] * 25)
    )
    entries = await entries_of(journal, "board")
    assert [entry.seq for entry in entries] == list(range(1, 51))
    assert len({entry.author for entry in entries}) == 2


async def test_other_event_loops_in_other_threads_may_use_the_journal(journal: Journal) -> None:
    async def write(name: str) -> None:
        for number in range(20):
            await journal.append("run", notes(f"{name}{number}"))

    threads = [threading.Thread(target=asyncio.run, args=(write(name),)) for name in "xyz"]
    for thread in threads:
        thread.start()
    await write("here")
    for thread in threads:
        await asyncio.to_thread(thread.join)
    texts = await texts_of(journal)
    assert len(texts) == 80
    assert [text for text in texts if text.startswith("x")] == [f"x{n}" for n in range(20)]


async def test_a_cancelled_append_is_stored_whole_or_not_at_all(journal: Journal) -> None:
    for turns in range(4):
        task = asyncio.create_task(journal.append(f"run{turns}", notes("a", "b", "c")))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        await journal.append(f"run{turns}", notes("d"))
        assert await texts_of(journal, f"run{turns}") in (["d"], ["a", "b", "c", "d"])


async def test_closing_twice_is_fine_and_ends_all_use(journal: Journal) -> None:
    await journal.append("run", notes("a"))
    await journal.close()
    await journal.close()
    with pytest.raises(UsageError, match="closed"):
        await journal.append("run", notes("b"))
    with pytest.raises(UsageError, match="closed"):
        await journal.leases.lead("run")


async def test_appends_under_way_are_stored_when_the_journal_is_closed(
    another: Callable[[], Journal],
) -> None:
    first, second = another(), another()
    pending = [asyncio.create_task(first.append("run", notes(str(n)))) for n in range(20)]
    await asyncio.sleep(0)
    await first.close()
    await asyncio.gather(*pending)
    assert len(await texts_of(second)) == 20


async def test_journal_errors_are_one_family(journal: Journal) -> None:
    with pytest.raises(JournalError):
        await journal.append("run", notes("a"), epoch=5)


# Deciding at the end of a stream


async def test_what_is_decided_is_appended_at_the_end_it_was_decided_from(journal: Journal) -> None:
    await journal.append("run", notes("a", "b"))
    position = await journal.decide("run", lambda tail: notes(f"after {tail.seq}"))
    assert position.seq == 3
    assert await texts_of(journal) == ["a", "b", "after 2"]


async def test_a_decision_about_a_new_stream_begins_it(journal: Journal) -> None:
    seen: list[int] = []

    def begin(tail: Tail) -> list[Event]:
        seen.append(tail.seq)
        assert tail.read(0) == []
        return notes("first")

    await journal.decide("run", begin)
    assert seen == [0]
    assert await texts_of(journal) == ["first"]


@pytest.mark.parametrize("texts", [(), ("read",)], ids=["saying nothing", "saying something"])
async def test_mail_is_taken_by_one_decision_together_with_what_it_says(
    journal: Journal, neighbour: Journal, texts: tuple[str, ...]
) -> None:
    await journal.append("run", notes("a"))
    await journal.mail.post(mail("k"))
    (letter,) = await journal.mail.unread()

    def take(tail: Tail) -> list[Event]:
        tail.take(letter.id)
        return notes(*texts)

    await journal.decide("run", take)
    assert await neighbour.mail.unread() == []
    for other in (journal, neighbour):
        with pytest.raises(KeyConflict):
            await other.decide("run", take)
    assert await texts_of(journal) == ["a", *texts]


async def test_deciding_nothing_stores_nothing(journal: Journal) -> None:
    await journal.append("run", notes("a"))
    assert (await journal.decide("run", lambda _: [])).seq == 1
    assert (await journal.decide("nowhere", lambda _: [])).seq == 0
    with pytest.raises(UnknownRun):
        await entries_of(journal, "nowhere")


async def test_a_decision_sees_the_entries_that_reading_would(
    journal: Journal, neighbour: Journal
) -> None:
    await journal.append("run", notes("a"))
    await neighbour.append("run", notes("b", "c"))
    seen: list[Entry] = []

    def look(tail: Tail) -> list[Event]:
        seen.extend(tail.read(1))
        assert tail.read(tail.seq) == []
        return []

    await journal.decide("run", look)
    assert seen == await entries_of(journal, after=1)
    assert {entry.author for entry in seen} == {neighbour.leases.node}


async def test_decisions_that_race_see_each_other(journal: Journal, neighbour: Journal) -> None:
    """Each of them counts what is there; in the end every number was given once."""

    def count(tail: Tail) -> list[Event]:
        return notes(str(len(tail.read(0))))

    deciding = [(journal, neighbour)[n % 2].decide("run", count) for n in range(100)]
    await asyncio.gather(*deciding)
    assert await texts_of(journal) == [str(number) for number in range(100)]


async def test_what_a_decision_raises_reaches_its_caller_alone(journal: Journal) -> None:
    def refuse(_: Tail) -> list[Event]:
        raise ZeroDivisionError("not today")

    refused, *kept = await asyncio.gather(
        journal.decide("run", refuse),
        journal.decide("run", lambda _: notes("a")),
        journal.append("run", notes("b")),
        return_exceptions=True,
    )
    assert isinstance(refused, ZeroDivisionError)
    assert not any(isinstance(each, BaseException) for each in kept)
    assert await texts_of(journal) == ["a", "b"]


async def test_nothing_is_decided_about_a_stream_that_is_led(
    journal: Journal, neighbour: Journal
) -> None:
    epoch = await journal.leases.lead("run")
    for each in (journal, neighbour):
        with pytest.raises(NotLeading, match="alone adds to it"):
            await each.decide("run", lambda _: notes("a"))
    await journal.leases.release("run", epoch)
    assert (await neighbour.decide("run", lambda _: notes("a"))).seq == 1


async def test_nothing_is_decided_about_a_forgotten_stream(journal: Journal) -> None:
    await journal.append("run", [note("a"), finished()])
    await forget(journal, "run")
    with pytest.raises(UnknownRun, match="retention"):
        await journal.decide("run", lambda _: notes("b"))


async def test_whoever_has_decided_is_alive_until_it_closes(
    journal: Journal, neighbour: Journal
) -> None:
    seen: list[bool] = []

    def look(tail: Tail) -> list[Event]:
        seen.append(tail.is_alive(neighbour.leases.node))
        return []

    await neighbour.decide("run", lambda _: notes("a"))
    await journal.decide("run", look)
    await neighbour.close()
    await journal.decide("run", look)
    assert seen == [True, False]


async def test_a_closed_journal_decides_nothing(journal: Journal) -> None:
    await journal.close()
    with pytest.raises(UsageError, match="closed"):
        await journal.decide("run", lambda _: notes("a"))


async def test_a_decision_that_cannot_be_written_down_is_undone_and_in_nobodys_way(
    journal: Journal,
) -> None:
    undone: list[str] = []
    await journal.append("run", notes("a"))
    with pytest.raises(NotJSON, match="ProgressNoted"):
        await journal.decide("run", lambda _: notes("\ud800"), undo=lambda: undone.append("it"))
    assert undone == ["it"]
    assert await texts_of(journal) == ["a"]


async def test_streams_of_a_node_that_left_without_a_word_are_abandoned(
    journal: Journal, neighbour: Journal
) -> None:
    led = await journal.leases.lead("led")
    released = await journal.leases.lead("released")
    ended = await journal.leases.lead("ended")
    for stream, epoch in (("led", led), ("released", released), ("ended", ended)):
        await journal.append(stream, notes("a"), epoch=epoch)
    await journal.leases.release("released", released)
    await journal.append("ended", [finished()], epoch=ended)
    assert await neighbour.leases.abandoned() == []
    await journal.close()
    assert await neighbour.leases.abandoned() == ["led"]
    await neighbour.leases.lead("led")
    assert await neighbour.leases.abandoned() == []


async def test_a_process_that_serves_is_known_to_others_until_it_withdraws_or_closes(
    journal: Journal, neighbour: Journal, another: Callable[[], Journal]
) -> None:
    async def served() -> dict[str, str]:
        return {each.node: each.offer for each in await neighbour.processes.alive() if each.offer}

    assert await served() == {}
    await journal.processes.serve("one crew")
    await journal.processes.serve("another crew")
    third = another()
    await third.processes.serve("a third crew")
    ours, theirs = journal.leases.node, third.leases.node
    assert await served() == {ours: "another crew", theirs: "a third crew"}
    alive = {each.node: each for each in await neighbour.processes.alive()}
    assert (alive[ours].pid, alive[ours].host) == (os.getpid(), socket.gethostname())
    await journal.processes.withdraw()
    assert await served() == {theirs: "a third crew"}
    assert ours in {each.node for each in await neighbour.processes.alive()}
    await third.close()
    assert await served() == {}


async def test_a_process_that_leads_is_alive_and_serves_nobody(
    journal: Journal, neighbour: Journal
) -> None:
    await journal.leases.lead("run")
    (leader,) = [
        each for each in await neighbour.processes.alive() if each.node == journal.leases.node
    ]
    assert leader.offer == ""
    await journal.processes.withdraw()  # though it never served
    await journal.close()
    assert leader.node not in {each.node for each in await neighbour.processes.alive()}
    assert leader.node not in {each.node for each in await neighbour.processes.known()}


async def test_a_process_is_heard_of_once_a_beat(journal: Journal, neighbour: Journal) -> None:
    await journal.leases.lead("run")
    beat = journal.processes.beat
    (leader,) = [
        each for each in await neighbour.processes.known() if each.node == journal.leases.node
    ]
    assert leader.is_alive
    assert (leader.lease_left is None) == (beat is None)
    if beat is not None and leader.lease_left is not None:
        assert 2 * beat < leader.lease_left <= BEATS * beat
