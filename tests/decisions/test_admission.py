"""Limiter, breaker and policy: what may start now."""

import heapq
import math
import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chargehand.decisions.circuit_breaker import OF_PROVIDERS, Breaker, BreakerPolicy, BreakerState
from chargehand.decisions.rate_limiter import Bucket, Limiter, Rates
from chargehand.decisions.tool_policy import Grants, Knowledge, Ruling, Traits, judge_call, reaches
from chargehand.errors import UsageError
from chargehand.facts.events import Effect


class World:
    """A provider that admits a rate and refuses the rest, on a clock of its own."""

    def __init__(
        self, latency: float, rate: float, burst: float, retry_after: float | None
    ) -> None:
        self.latency = latency
        self.rate = rate
        self.burst = burst
        self.retry_after = retry_after
        self.sent = 0
        self.sent_in_window = 0
        self._level = burst
        self._at = 0.0
        self._window = -1.0

    def admits(self, now: float) -> bool:
        self.sent += 1
        self.sent_in_window += now < self._window - 1e-9
        self._level = min(self.burst, self._level + (now - self._at) * self.rate)
        self._at = now
        if self._level < 1:
            return False
        self._level -= 1
        return True

    def hear(self, now: float) -> None:
        if self.retry_after is not None:
            self._window = max(self._window, now + self.retry_after)


def call_all(world: World, calls: int, workers: int, seed: int = 0) -> float:
    """Get all calls through the limiter; returns when the last was answered."""
    dice = random.Random(seed)
    limiter = Limiter()
    now, waiting, done, count = 0.0, calls, 0, 0
    flying: list[tuple[float, int, float, bool]] = []
    while done < calls:
        while waiting and limiter.in_flight < workers and not limiter.wait(100, now):
            limiter.start(100, now)
            waiting -= 1
            count += 1
            is_fine = world.admits(now)
            takes = world.latency * dice.uniform(0.8, 1.2) if is_fine else 0.002
            heapq.heappush(flying, (now + takes, count, now, is_fine))
        may_wait = waiting and limiter.in_flight < workers
        next_at = now + limiter.wait(100, now) if may_wait else math.inf
        if not flying or flying[0][0] > next_at:
            now = next_at
            continue
        now, _, began, is_fine = heapq.heappop(flying)
        if is_fine:
            limiter.succeed(100, 100, now)
            done += 1
        else:
            world.hear(now)
            limiter.slow_down(began, now, world.retry_after)
            waiting += 1
    assert limiter.in_flight == 0
    return now


@pytest.mark.parametrize("retry_after", [None, 0.0, 1e-6, 1.0])
@pytest.mark.parametrize("burst", [1, 5, 20])
@pytest.mark.parametrize("latency", [0.05, 0.5, 2.0])
@pytest.mark.parametrize("workers", [16, 100])
def test_d2_a_provider_that_admits_a_fifth_is_not_stormed(
    latency: float, burst: float, retry_after: float | None, workers: int
) -> None:
    """At most half as many calls again as are needed, and none while told to wait."""
    world = World(latency, workers / latency / 5, burst, retry_after)
    call_all(world, 100, workers)
    assert world.sent / 100 <= 1.5
    assert world.sent_in_window == 0


def test_calls_at_once_double_until_told_to_slow_down_then_grow_by_one_a_round() -> None:
    limiter = Limiter()
    first = limiter.window
    for _ in range(int(first)):
        limiter.start(1, 0.0)
    for _ in range(int(first)):
        limiter.succeed(1, 1, 1.0)
    assert limiter.window == 2 * first
    limiter.start(1, 2.0)
    limiter.slow_down(2.0, 2.1, None)
    assert limiter.window == first


def test_refusals_of_calls_sent_before_slowing_down_teach_nothing_new() -> None:
    limiter = Limiter()
    for _ in range(8):
        limiter.start(1, 0.0)
    for _ in range(8):
        limiter.slow_down(0.0, 0.1, None)
    assert limiter.window == Limiter().window / 2
    assert limiter.in_flight == 0


@pytest.mark.parametrize("asked", [None, 0.0, 1e-6, 0.1, 2.0])
@pytest.mark.parametrize("draw", [0.0, 1.0])
def test_a_wait_that_is_asked_for_only_lengthens_the_backoff(
    asked: float | None, draw: float
) -> None:
    limiter, now = Limiter(), 0.0
    for backoff in [0.25, 0.5, 1, 2, 4, 8, 16, *[30.0] * 2_000]:
        limiter.start(1, now)
        limiter.slow_down(now, now, asked, draw)
        wait = limiter.wait(1, now)
        assert wait == pytest.approx(max(backoff * (1 + draw / 4), asked or 0))
        now += wait


def test_an_agreed_number_of_calls_at_once_is_kept() -> None:
    limiter = Limiter(Rates(concurrency=2))
    assert limiter.wait(1, 0.0) == 0
    limiter.start(1, 0.0)
    limiter.start(1, 0.0)
    assert limiter.wait(1, 0.0) == math.inf


def test_agreed_requests_a_minute_are_a_burst_of_a_sixth_and_then_evenly_spread() -> None:
    limiter, sent = Limiter(Rates(requests=120, concurrency=1000)), []
    now = 0.0
    while now < 10:
        wait = limiter.wait(0, now)
        if wait > 0:
            now += wait
            continue
        limiter.start(0, now)
        sent.append(now)
    assert sent[:20] == [0.0] * 20
    assert sent[20:24] == pytest.approx([0.5, 1.0, 1.5, 2.0])
    assert limiter.hold(0, sent[-1]).words == "the limit of 120 requests a minute"


def test_a_wait_is_told_in_words_that_name_the_limit() -> None:
    limiter = Limiter(Rates(concurrency=1))
    limiter.start(0, 0.0)
    assert limiter.hold(0, 0.0) == ("the limit of 1 call at once", True)
    slow = Limiter(Rates(requests=0.5))
    slow.start(0, 0.0)
    assert slow.hold(0, 0.0).words == "the limit of 0.5 requests a minute"
    slowed = Limiter()
    for second in range(8):
        slowed.start(0, second)
        slowed.succeed(0, 0, second)
    slowed.start(0, 8.0)
    slowed.slow_down(8.0, 8.0, None)
    slowed.start(0, 9.0)
    assert slowed.hold(0, 9.0) == (
        "after a 429, calls go at the rate of recent replies: 54 requests a minute, "
        "and more while they succeed",
        False,
    )


def test_a_limit_that_nobody_has_set_is_not_told_as_one() -> None:
    learned = Limiter()
    for second in range(5):
        learned.start(0, second)
        learned.slow_down(second, second, None)
    learned.start(0, 5.0)
    words = "after a refused call, no more than 1 call at once, and more while they succeed"
    assert learned.hold(0, 5.0) == (words, False)
    stated = Limiter()
    stated.agree(6, None)
    stated.start(0, 0.0)
    assert stated.hold(0, 0.0) == ("the provider's limit of 6 requests a minute", False)


def test_agreed_tokens_a_minute_are_kept_and_given_back_when_fewer_were_used() -> None:
    limiter = Limiter(Rates(tokens=6000))
    limiter.start(3000, 0.0)
    assert limiter.wait(1000, 0.0) == pytest.approx(10)
    limiter.succeed(3000, 1000, 0.0)
    assert limiter.wait(1000, 0.0) == 0


@given(
    st.floats(1, 1e5),
    st.floats(1, 100),
    st.lists(st.tuples(st.floats(0, 100), st.floats(0, 200), st.booleans()), max_size=50),
)
def test_a_bucket_never_holds_more_than_its_size_nor_less_than_nothing(
    a_minute: float, size: float, acts: list[tuple[float, float, bool]]
) -> None:
    bucket = Bucket(a_minute, size)
    now = 0.0
    for passed, units, is_taken in acts:
        now += passed
        (bucket.take if is_taken else bucket.give_back)(units, now)
        assert bucket.wait(0, now) == 0
        assert 0 <= bucket.wait(size, now) <= size / bucket.rate + 1e-6
    assert bucket.wait(size, now + size / bucket.rate + 1e-3) <= 1e-6


@pytest.mark.parametrize("field", ["requests", "tokens", "concurrency"])
def test_rates_of_nothing_are_refused(field: str) -> None:
    with pytest.raises(UsageError, match=field):
        Rates(**{field: 0})


def test_a_breaker_opens_after_its_threshold_and_lets_one_probe_through() -> None:
    breaker = Breaker(BreakerPolicy(failures=3, rest=10).over(OF_PROVIDERS))
    for _ in range(2):
        breaker.fail(0.0, "down")
    assert breaker.wait(0.0) == 0
    breaker.fail(0.0, "down")
    assert breaker.state is BreakerState.OPEN
    assert breaker.wait(4.0) == 6
    assert breaker.wait(10.0) == 0
    breaker.start()
    assert breaker.wait(10.0) == math.inf


def test_a_failed_probe_doubles_the_rest_and_a_good_one_closes() -> None:
    breaker = Breaker(BreakerPolicy(failures=1, rest=10, longest_rest=15).over(OF_PROVIDERS))
    breaker.fail(0.0, "down")
    breaker.start()
    breaker.fail(10.0, "still down")
    assert breaker.wait(10.0) == 15
    breaker.start()
    breaker.succeed()
    assert breaker.wait(30.0) == 0
    breaker.fail(30.0, "down")
    assert breaker.wait(30.0) == 10


def test_a_probe_that_comes_to_nothing_gives_its_turn_to_another() -> None:
    breaker = Breaker(BreakerPolicy(failures=1, rest=10).over(OF_PROVIDERS))
    breaker.fail(0.0, "down")
    breaker.start()
    breaker.withdraw()
    assert breaker.wait(10.0) == 0


@given(st.lists(st.sampled_from(["start", "succeed", "fail", "withdraw", "wait"]), max_size=60))
def test_while_open_nothing_passes_and_half_open_means_one_probe(acts: list[str]) -> None:
    breaker = Breaker(BreakerPolicy(failures=2, rest=5).over(OF_PROVIDERS))
    now, flying, probes = 0.0, 0, 0
    for act in acts:
        now += 1
        if act == "start" and breaker.wait(now) == 0:
            probes = probes + 1 if breaker.state is BreakerState.OPEN else 0
            breaker.start()
            flying += 1
            assert probes <= 1
        elif act != "start" and act != "wait" and flying:
            flying -= 1
            probes = 0
            if act == "fail":
                breaker.fail(now, "x")
            else:
                getattr(breaker, act)()


def traits(**more: object) -> Traits:
    return Traits(**{"name": "send", "effect": Effect.ONCE, **more})  # type: ignore[arg-type]


SEND = Grants(tools=frozenset({"send"}), destinations=frozenset({"example.org"}))
TAINTED = Knowledge(taint=("tool:fetch_page",))
BACK = traits(destination="example.org", server="https://example.org/mcp")


@pytest.mark.parametrize(
    ("tool", "grants", "knowledge", "ruling"),
    [
        (traits(), SEND, Knowledge(), Ruling.ALLOWED),
        (traits(name="other"), SEND, Knowledge(), Ruling.DENIED),
        (traits(destination="evil.com"), SEND, Knowledge(), Ruling.DENIED),
        (traits(destination="api.example.org"), SEND, Knowledge(), Ruling.ALLOWED),
        (traits(destination="example.org.evil.com"), SEND, Knowledge(), Ruling.DENIED),
        (traits(needs_approval=True), SEND, Knowledge(), Ruling.ASK),
        (traits(destination="example.org"), SEND, TAINTED, Ruling.ASK),
        (traits(), SEND, TAINTED, Ruling.ALLOWED),
        (
            BACK,
            SEND,
            msgspec.structs.replace(TAINTED, only_from="https://example.org/mcp"),
            Ruling.ALLOWED,
        ),
        (
            BACK,
            SEND,
            msgspec.structs.replace(TAINTED, only_from="https://example.org/other"),
            Ruling.ASK,
        ),
        (BACK, SEND, TAINTED, Ruling.ASK),
        (
            BACK,
            SEND,
            Knowledge(taint=("x",), is_sensitive=True, only_from="https://example.org/mcp"),
            Ruling.ASK,
        ),
        (
            BACK,
            msgspec.structs.replace(SEND, has_secrets=True),
            Knowledge(taint=("x",), only_from="https://example.org/mcp"),
            Ruling.ASK,
        ),
        (
            msgspec.structs.replace(BACK, needs_approval=True),
            SEND,
            Knowledge(taint=("x",), only_from="https://example.org/mcp"),
            Ruling.ASK,
        ),
        (traits(), SEND, Knowledge(taint=("x",), is_sensitive=True), Ruling.ASK),
        (
            traits(effect=Effect.PURE),
            SEND,
            Knowledge(taint=("x",), is_sensitive=True),
            Ruling.ALLOWED,
        ),
    ],
)
def test_nobody_holds_hostile_input_secrets_and_power_at_once(
    tool: Traits, grants: Grants, knowledge: Knowledge, ruling: Ruling
) -> None:
    verdict = judge_call(tool, grants, knowledge)
    assert verdict.ruling is ruling
    assert bool(verdict.why) is (ruling is not Ruling.ALLOWED)


def test_e9_what_is_not_granted_is_denied_even_if_it_would_only_ask() -> None:
    verdict = judge_call(traits(name="wire_money", needs_approval=True), SEND, Knowledge())
    assert verdict.ruling is Ruling.DENIED


names = st.frozensets(st.sampled_from("abcd*"))


@given(names, names, names, names)
def test_grants_only_shrink(
    tools: frozenset[str], more: frozenset[str], hosts: frozenset[str], others: frozenset[str]
) -> None:
    one, other = Grants(tools=tools, destinations=hosts), Grants(tools=more, destinations=others)
    both = one.within(other)
    assert both.tools <= tools & more
    for host in "abcd":
        if reaches(host, both.destinations):
            assert reaches(host, hosts)
            assert reaches(host, others)
