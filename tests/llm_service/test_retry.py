"""Every branch of the error tree under a clock whose hands jump: tries, sleeps, budget, breaker."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_service import errors
from llm_service.errors import (
    Away,
    BackendError,
    Garbled,
    Overloaded,
    Permanent,
    QuotaExhausted,
    RateLimited,
    ServiceError,
    TimedOut,
    Transient,
    Unauthorized,
    Unreachable,
)
from llm_service.pipeline.retry import Breaker, RetryBudget, RetryConfig, retried
from tests.llm_service.fake_clock import FakeClock


def family(kind):
    """A class of the error tree and all below it; other modules' own subclasses are not part of the tree."""
    below = [child for child in kind.__subclasses__() if child.__module__ == errors.__name__]
    return {kind, *(leaf for child in below for leaf in family(child))}


TRANSIENT = sorted(family(Transient) - {Transient}, key=lambda kind: kind.__name__)
PERMANENT = sorted(family(Permanent) - {Permanent}, key=lambda kind: kind.__name__)
OTHERS = sorted(family(ServiceError) - family(BackendError) - {ServiceError}, key=lambda kind: kind.__name__)


class Script:
    """Raises or returns what it is told, one entry a call; the last for ever."""

    def __init__(self, *entries, clock=None, takes=0.0):
        self.entries, self.calls, self.clock, self.takes = entries, 0, clock, takes

    async def __call__(self):
        entry = self.entries[min(self.calls, len(self.entries) - 1)]
        self.calls += 1
        if self.clock:
            self.clock.pass_(self.takes)
        if isinstance(entry, Exception):
            raise entry
        return entry


def run(script, clock, config=None, budget=None, draws=(0.5,), deadline=float("inf")):
    """What `retried` makes of a script, with scripted jitter."""
    config = config or RetryConfig()
    left = list(draws)
    random = lambda: left.pop(0) if len(left) > 1 else left[0]  # noqa: E731
    return asyncio.run(retried(script, config, budget or RetryBudget(config), clock, random, deadline))


def test_the_tree_is_as_the_tests_below_assume():
    assert {kind.__name__ for kind in TRANSIENT} == {"RateLimited", "Overloaded", "Unreachable", "TimedOut", "Garbled"}
    assert {"QuotaExhausted", "Unauthorized", "Refused", "ContextTooLong", "Unsupported", "NotRecorded"} <= {
        kind.__name__ for kind in PERMANENT
    }
    assert {kind.__name__ for kind in OTHERS} == {"Away", "OutOfBudget", "Busy", "Expired", "Malformed"}


# ---- one call -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TRANSIENT)
def test_a_transient_error_is_tried_again(kind):
    clock, script = FakeClock(), Script(kind("down"), kind("down"), "answer")
    assert run(script, clock, draws=(0.5, 0.25)) == "answer"
    assert script.calls == 3
    assert clock.slept == [0.5 * 0.5, 0.25 * 1.0]


@pytest.mark.parametrize("kind", [*PERMANENT, *OTHERS])
def test_anything_else_is_raised_at_once_and_untouched(kind):
    clock, error = FakeClock(), kind("no")
    script = Script(error)
    with pytest.raises(kind) as raised:
        run(script, clock)
    assert raised.value is error
    assert script.calls == 1
    assert clock.slept == []


def test_a_defect_of_ours_is_not_tried_again():
    script = Script(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        run(script, FakeClock())
    assert script.calls == 1


@pytest.mark.parametrize(("draw", "expected"), [(0.0, [0, 0, 0, 0, 0, 0, 0]), (1.0, [0.5, 1, 2, 4, 8, 16, 20])])
def test_the_bounds_of_the_jitter(draw, expected):
    clock, script = FakeClock(), Script(Overloaded("down"))
    with pytest.raises(Overloaded):
        run(script, clock, RetryConfig(attempts=8, seconds=1e6), draws=(draw,))
    assert clock.slept == expected
    assert script.calls == 8


def test_the_last_error_tells_how_often_and_how_long():
    clock, error = FakeClock(), RateLimited("HTTP 429", retry_after=3.0)
    with pytest.raises(RateLimited, match=r"HTTP 429 \(tried 3 times in 7.5 s; no attempts are left\)") as raised:
        run(Script(error), clock, RetryConfig(attempts=3), draws=(1.0,))
    assert raised.value.retry_after == 3.0
    assert str(error) == "HTTP 429", "an error may belong to many calls: it is not changed in place"


def test_wall_time_counts_the_attempts_themselves():
    clock = FakeClock()
    script = Script(TimedOut("no answer"), clock=clock, takes=25.0)
    with pytest.raises(TimedOut, match=r"tried 3 times in 75.5 s; no time is left"):
        run(script, clock, RetryConfig(seconds=60.0), draws=(0.5, 0.25))
    assert script.calls == 3


def test_nothing_is_slept_when_the_wait_does_not_fit():
    clock, script = FakeClock(), Script(Unreachable("refused"))
    with pytest.raises(Unreachable, match="no time is left"):
        run(script, clock, RetryConfig(base_s=8.0), draws=(1.0,), deadline=7.9)
    assert (script.calls, clock.slept) == (1, [])


def test_a_deadline_in_the_past_still_allows_the_first_attempt_and_no_more():
    clock, script = FakeClock(), Script(Garbled("cut"))
    with pytest.raises(Garbled, match="tried 1 times"):
        run(script, clock, deadline=-1.0)
    assert script.calls == 1


@pytest.mark.parametrize("kind", [RateLimited, Overloaded])
@pytest.mark.parametrize("draw", [0.0, 0.5, 0.999])
def test_retry_after_is_waited_for_and_spread(kind, draw):
    clock, script = FakeClock(), Script(kind("busy", retry_after=7.0), "answer")
    assert run(script, clock, draws=(draw,)) == "answer"
    assert clock.slept == [7.0 + draw * 0.5]


@pytest.mark.parametrize("limits", [{"deadline": 29.0}, {"config": RetryConfig(seconds=29.0)}])
def test_retry_after_beyond_the_time_there_is_gives_up_at_once(limits):
    clock, script = FakeClock(), Script(RateLimited("busy", retry_after=30.0), "never reached")
    with pytest.raises(RateLimited, match=r"the server asks for 30.0 s"):
        run(script, clock, draws=(0.0,), **limits)
    assert (script.calls, clock.slept, clock.now()) == (1, [], 0.0)


def test_quota_is_not_waited_for_even_after_a_wait():
    clock, script = FakeClock(), Script(RateLimited("busy", retry_after=1.0), QuotaExhausted("no credit"))
    with pytest.raises(QuotaExhausted):
        run(script, clock, draws=(0.0,))
    assert (script.calls, clock.slept) == (2, [1.0])


def test_an_open_breaker_inside_an_attempt_ends_it():
    clock, script = FakeClock(), Script(Overloaded("down"), Away("breaker open"))
    with pytest.raises(Away):
        run(script, clock)
    assert script.calls == 2


# ---- all calls ------------------------------------------------------------------------------------------------------


def test_a_storm_spends_the_budget_and_no_more():
    clock, config = FakeClock(), RetryConfig(attempts=6, share=0.2, burst=10.0)
    budget, script = RetryBudget(config), Script(Overloaded("down"))

    async def storm():
        async def call():
            budget.earn()
            await retried(script, config, budget, clock, lambda: 0.5, float("inf"))

        return await asyncio.gather(*(call() for _ in range(100)), return_exceptions=True)

    ends = asyncio.run(storm())
    assert all(isinstance(end, Overloaded) for end in ends)
    # Earned while the bucket is full is lost: 10 saved up, and at most 0.2 for each first try.
    assert 100 + 10 <= script.calls <= 100 + 10 + 20
    assert sum("too large a share of the traffic" in str(end) for end in ends) >= 80


@given(
    st.lists(st.booleans(), max_size=300),
    st.floats(0, 1),
    st.floats(0, 20),
)
def test_retries_never_pass_their_share(steps, share, burst):
    budget = RetryBudget(RetryConfig(share=share, burst=burst))
    firsts = retries = 0
    for first in steps:
        if first:
            budget.earn()
            firsts += 1
        else:
            retries += budget.spend()
        assert retries <= burst + share * firsts + 1e-9


def test_a_long_calm_saves_up_no_more_than_the_burst():
    budget = RetryBudget(RetryConfig(share=0.5, burst=4.0))
    for _ in range(1000):
        budget.earn()
    assert [budget.spend() for _ in range(5)] == [True] * 4 + [False]


def test_a_budget_of_nothing_forbids_every_retry():
    clock, config, script = FakeClock(), RetryConfig(share=0.0, burst=0.0), Script(Overloaded("down"))
    with pytest.raises(Overloaded, match="too large a share of the traffic is retries"):
        run(script, clock, config)
    assert script.calls == 1


# ---- the breaker ----------------------------------------------------------------------------------------------------


def breaker(**fields):
    clock = FakeClock()
    return Breaker(RetryConfig(**fields), clock), clock


def opened(**fields):
    """A breaker that five failures opened."""
    client, clock = breaker(**fields)
    for _ in range(5):
        client.admit()
        client.failed(Overloaded("HTTP 503"))
    assert client.state == "open"
    return client, clock


@pytest.mark.parametrize("kind", TRANSIENT)
def test_failures_in_a_row_open_it(kind):
    client, _ = breaker(failures=3)
    for _ in range(2):
        client.admit()
        client.failed(kind("down"))
        assert client.state == "closed"
    client.failed(kind("down"))
    with pytest.raises(Away, match=r"gets no calls for 10.0 s more, because down"):
        client.admit()


def test_a_success_between_them_starts_the_count_again():
    client, _ = breaker(failures=2)
    for _ in range(5):
        client.failed(TimedOut("slow"))
        client.succeeded()
    assert client.state == "closed"


@pytest.mark.parametrize("kind", [QuotaExhausted, Unauthorized])
def test_no_credit_and_a_bad_key_open_it_at_once(kind):
    client, _ = breaker()
    client.admit()
    client.failed(kind("no"))
    assert client.state == "open"


@pytest.mark.parametrize("kind", [k for k in PERMANENT if k not in (QuotaExhausted, Unauthorized)])
def test_errors_that_speak_of_the_question_do_not_count(kind):
    client, _ = breaker(failures=2)
    client.failed(Overloaded("down"))
    for _ in range(10):
        client.failed(kind("no"))
    assert client.state == "closed"
    client.failed(Overloaded("down"))
    assert client.state == "open", "nor do they interrupt the row"


def test_open_until_its_time_then_one_probe_at_a_time():
    client, clock = opened(open_s=10.0)
    clock.pass_(9.99)
    with pytest.raises(Away):
        client.admit()
    clock.pass_(0.01)
    assert client.state == "half-open"
    client.admit()
    for _ in range(50):
        with pytest.raises(Away, match="being probed"):
            client.admit()


def test_a_probe_that_succeeds_closes_it():
    client, clock = opened()
    clock.pass_(10.0)
    client.admit()
    client.succeeded()
    assert client.state == "closed"
    for _ in range(4):
        client.admit()
        client.failed(Overloaded("down"))
    assert client.state == "closed", "the count starts again"


def test_probes_that_fail_double_the_time_up_to_its_cap_and_a_success_resets_it():
    client, clock = opened(open_s=10.0, open_cap_s=60.0)
    for expected in (10.0, 20.0, 40.0, 60.0, 60.0):
        clock.pass_(expected - 0.01)
        assert client.state == "open"
        clock.pass_(0.01)
        assert client.state == "half-open"
        client.admit()
        client.failed(Unreachable("refused"))
    clock.pass_(60.0)
    client.admit()
    client.succeeded()
    client.failed(QuotaExhausted("no credit"))
    clock.pass_(10.0)
    assert client.state == "half-open"


def test_one_failed_probe_is_enough_to_open_it_again():
    client, clock = breaker(failures=5)
    client.failed(QuotaExhausted("no credit"))
    clock.pass_(10.0)
    client.admit()
    client.failed(TimedOut("slow"))
    assert client.state == "open"


def test_a_probe_that_was_refused_makes_room_for_the_next():
    client, clock = opened()
    clock.pass_(10.0)
    client.admit()
    client.failed(errors.ContextTooLong("too long"))
    assert client.state == "half-open"
    client.admit()
    client.succeeded()
    assert client.state == "closed"


def test_a_probe_that_was_never_heard_of_is_replaced():
    client, clock = opened(open_cap_s=120.0)
    clock.pass_(10.0)
    client.admit()
    clock.pass_(119.9)
    with pytest.raises(Away):
        client.admit()
    clock.pass_(0.1)
    client.admit()
    with pytest.raises(Away):
        client.admit()


def test_what_was_sent_before_it_opened_changes_nothing_when_it_comes_back():
    client, clock = opened(open_s=10.0)
    client.succeeded()
    client.failed(Overloaded("late"))
    assert client.state == "open"
    clock.pass_(10.0)
    assert client.state == "half-open", "a late failure does not prolong it"
    client.succeeded()
    client.failed(Overloaded("late"))
    assert client.state == "half-open", "only a probe decides"


def test_calls_at_once_around_a_breaker():
    """A dead backend is tried `failures` times, then once for each probe; when it recovers, all go through."""
    clock, config = FakeClock(), RetryConfig(failures=3, open_s=10.0, attempts=1)
    client, budget, calls = Breaker(config, clock), RetryBudget(config), []
    alive_at = 25.0

    async def attempt():
        client.admit()
        calls.append(clock.now())
        await clock.sleep(0.1)
        if clock.now() < alive_at:
            error = Unreachable("refused")
            client.failed(error)
            raise error
        client.succeeded()
        return "answer"

    async def caller(start):
        await clock.sleep(start)
        return await retried(attempt, config, budget, clock, lambda: 0.5, float("inf"))

    async def all_callers():
        return await asyncio.gather(*(caller(second) for second in range(60)), return_exceptions=True)

    ends = asyncio.run(all_callers())
    assert calls[:4] == pytest.approx([0.0, 1.0, 2.0, 13.0]), "three failures, then a probe 10 s later"
    assert calls[4] == pytest.approx(34.0), "and another 20 s after that one"
    assert ends[34:] == ["answer"] * 26
    assert sum(isinstance(end, Away) for end in ends) == 60 - 4 - 26
