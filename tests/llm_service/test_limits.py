"""Rates under a clock whose hands jump; the ledger against a reference, against crashes and against kill -9."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from pydantic import ValidationError

from llm_service.errors import OutOfBudget, UsageError
from llm_service.pipeline.ledger import NANO, Ledger, read
from llm_service.pipeline.limits import LimitsConfig, Rate
from tests.llm_service.fake_clock import FakeClock

# ---- rate -----------------------------------------------------------------------------------------------------------


def admitted(config, requests):
    """[(second, tokens)] of requests that all come at second 0."""
    clock, times = FakeClock(), []

    async def ask():
        rate = Rate(config, clock)

        async def one(tokens):
            await rate.admit(tokens)
            times.append((clock.now(), tokens))

        await asyncio.gather(*(one(tokens) for tokens in requests))

    asyncio.run(ask())
    return times


def test_no_cap_never_waits():
    assert admitted(LimitsConfig(), [10**9] * 100) == [(0.0, 10**9)] * 100


def test_requests_are_spread_over_the_minute():
    times = [at for at, _ in admitted(LimitsConfig(requests_per_minute=30.0), [1] * 31)]
    assert times == pytest.approx([2.0 * n for n in range(31)])


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 400), st.integers(1, 300))
def test_no_minute_has_more_requests_than_the_cap(cap, count):
    times = [at for at, _ in admitted(LimitsConfig(requests_per_minute=float(cap)), [1] * count)]
    assert len(times) == count
    for i, start in enumerate(times):
        assert sum(start <= at < start + 60 - 1e-3 for at in times[i:]) <= cap


@settings(max_examples=60, deadline=None)
@given(st.integers(60, 5000), st.lists(st.integers(1, 3000), min_size=1, max_size=60))
def test_no_minute_has_more_tokens_than_the_cap_and_one_request(cap, sizes):
    times = admitted(LimitsConfig(tokens_per_minute=float(cap)), sizes)
    for i, (start, _) in enumerate(times):
        within = sum(tokens for at, tokens in times[i:] if start <= at < start + 60 - 1e-3)
        assert within <= cap + max(sizes) + 1


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=40))
@settings(max_examples=60, deadline=None)
def test_first_come_first_served_even_if_a_small_one_would_fit(sizes):
    times = admitted(LimitsConfig(tokens_per_minute=600.0, requests_per_minute=100.0), sizes)
    assert [tokens for _, tokens in times] == sizes


def test_the_stricter_of_both_caps_holds():
    config = LimitsConfig(requests_per_minute=60.0, tokens_per_minute=600.0)
    times = [at for at, _ in admitted(config, [100, 100, 100])]
    assert times[2] - times[1] == pytest.approx(100 / ((600 - 9) / 60)), "tokens are what is scarce"


def test_the_cap_is_reached_in_the_long_run():
    times = [at for at, _ in admitted(LimitsConfig(requests_per_minute=600.0), [1] * 6001)]
    assert 600 < times[-1] < 600 * 1.02


def test_who_is_cancelled_while_waiting_takes_nothing_and_blocks_nobody():
    clock, order = FakeClock(), []

    async def ask():
        rate = Rate(LimitsConfig(requests_per_minute=1.0), clock)
        await rate.admit(1)

        async def one(name):
            await rate.admit(1)
            order.append((name, clock.now()))

        tasks = [asyncio.ensure_future(one(name)) for name in "abc"]
        await asyncio.sleep(0)
        tasks[0].cancel()
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(ask())
    assert order == [("c", pytest.approx(60.0))]


# ---- ledger ---------------------------------------------------------------------------------------------------------


def still_open(ledger):
    """How many reservations are neither settled nor released."""
    return len(ledger._book.open)


def this_hour(ledger):
    """Tokens and dollars that count towards the caps of an hour now."""
    ledger._book.forget(ledger._clock.wall())
    return ledger._book.hour_tokens, ledger._book.hour_nano / NANO


def test_a_reservation_is_settled_at_what_it_cost(tmp_path):
    ledger = Ledger(LimitsConfig(), tmp_path / "ledger.jsonl", FakeClock())
    first, second = ledger.reserve(100, 0.5), ledger.reserve(10, 0.25)
    assert (ledger.tokens, ledger.dollars, still_open(ledger)) == (110, 0.75, 2)
    ledger.settle(first, 60, 0.3)
    ledger.release(second)
    assert (ledger.tokens, ledger.dollars, still_open(ledger)) == (60, 0.3, 0)
    assert this_hour(ledger) == (60, 0.3)


@pytest.mark.parametrize(
    ("cap", "tokens", "dollars"),
    [
        ({"tokens": 100}, 101, 0.0),
        ({"dollars": 0.3}, 0, 0.3000001),
        ({"tokens_per_hour": 100}, 101, 0.0),
        ({"dollars_per_hour": 0.3}, 0, 0.3000001),
        ({"tokens": 0}, 1, 0.0),
    ],
)
def test_what_would_pass_a_cap_is_refused_before_anything_is_written(tmp_path, cap, tokens, dollars):
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(LimitsConfig(**cap), path, FakeClock())
    with pytest.raises(OutOfBudget, match=f"limits.{next(iter(cap))} is "):
        ledger.reserve(tokens, dollars)
    assert path.read_bytes() == b""
    assert (ledger.tokens, ledger.dollars) == (0, 0.0)


def test_a_cap_can_be_used_up_exactly(tmp_path):
    ledger = Ledger(LimitsConfig(dollars=1.0, tokens=20), tmp_path / "ledger.jsonl", FakeClock())
    for spent in range(10):
        assert ledger.share == pytest.approx(spent / 10)  # of the dollars, which end first
        ledger.settle(ledger.reserve(1, 0.1), 1, 0.1)
    assert (ledger.tokens, ledger.dollars, ledger.share) == (10, 1.0, 1.0)
    assert Ledger(LimitsConfig(), tmp_path / "other.jsonl", FakeClock()).share == 0.0
    with pytest.raises(OutOfBudget):
        ledger.reserve(0, 1e-9)


def test_the_hour_slides(tmp_path):
    clock = FakeClock()
    ledger = Ledger(LimitsConfig(tokens_per_hour=100), tmp_path / "ledger.jsonl", clock)
    ledger.settle(ledger.reserve(60, 0.0), 60, 0.0)
    clock.pass_(1800)
    ledger.reserve(40, 0.0)
    with pytest.raises(OutOfBudget, match="or wait"):
        ledger.reserve(1, 0.0)
    clock.pass_(1799)
    assert this_hour(ledger)[0] == 100
    clock.pass_(1)
    assert this_hour(ledger)[0] == 40
    ledger.reserve(60, 0.0)
    assert ledger.tokens == 160


def test_what_left_the_hour_before_it_was_settled_stays_out(tmp_path):
    clock = FakeClock()
    ledger = Ledger(LimitsConfig(), tmp_path / "ledger.jsonl", clock)
    late = ledger.reserve(60, 0.1)
    clock.pass_(3600)
    assert this_hour(ledger)[0] == 0
    ledger.settle(late, 50, 0.05)
    assert (ledger.tokens, *this_hour(ledger)) == (50, 0, 0.0)


def test_a_calendar_that_is_set_back_counts_rather_too_long_but_not_for_ever(tmp_path):
    clock = FakeClock()
    ledger = Ledger(LimitsConfig(tokens_per_hour=100), tmp_path / "ledger.jsonl", clock)
    ledger.reserve(100, 0.0)
    clock.shift_wall(-86_400)
    with pytest.raises(OutOfBudget):
        ledger.reserve(1, 0.0)
    clock.pass_(3600)
    ledger.reserve(100, 0.0)


def test_open_reservations_of_a_crash_count_as_spent(tmp_path):
    path, clock = tmp_path / "ledger.jsonl", FakeClock()
    before = Ledger(LimitsConfig(), path, clock)
    before.settle(before.reserve(100, 1.0), 70, 0.7)
    before.reserve(50, 0.5)
    crash(before)
    after = Ledger(LimitsConfig(tokens=121), path, clock)
    assert (after.tokens, after.dollars, still_open(after)) == (120, 1.2, 1)
    with pytest.raises(OutOfBudget):
        after.reserve(2, 0.0)
    with pytest.raises(KeyError):
        after.settle(3, 1, 0.0)
    assert after.reserve(1, 0.0) == 3, "numbers are never used twice"


def crash(ledger):
    """What kill -9 does: the file is let go, nothing more is written."""
    os.close(ledger._file)
    ledger._file = None


@pytest.mark.parametrize("cut", range(1, 60))
def test_a_torn_last_line_is_dropped_wherever_it_was_cut(tmp_path, cut):
    path, clock = tmp_path / "ledger.jsonl", FakeClock()
    ledger = Ledger(LimitsConfig(), path, clock)
    ledger.reserve(5, 0.5)
    whole = path.read_bytes()
    ledger.reserve(7, 0.7)
    crash(ledger)
    torn = path.read_bytes()[:-cut]
    assert len(torn) > len(whole)
    path.write_bytes(torn)
    assert read(path).tokens == 5
    assert path.read_bytes() == torn, "reading changes nothing"
    again = Ledger(LimitsConfig(), path, clock)
    assert path.read_bytes() == whole
    assert again.tokens == 5
    again.reserve(1, 0.1)
    assert read(path).tokens == 6


@pytest.mark.parametrize(
    "damage",
    [
        b"\0\0\0\n",
        b"[]\n",
        b"{}\n",
        b'{"reserve": 1, "at": 1.0, "tokens": 1, "dollars": 0.0}\n',  # a number twice
        b'{"reserve": 9, "at": 1.0, "tokens": -1, "dollars": 0.0}\n',
        b'{"reserve": 9, "at": 1.0, "tokens": 1.5, "dollars": 0.0}\n',
        b'{"reserve": 9, "at": NaN, "tokens": 1, "dollars": 0.0}\n',
        b'{"reserve": 9, "at": 1.0, "tokens": 1, "dollars": Infinity}\n',
        b'{"reserve": 9, "at": 1.0, "tokens": 1, "dollars": -0.1}\n',
        b'{"settle": 5, "tokens": 1, "dollars": 0.1}\n',
        b'{"release": 5}\n',
        b"\xff\xfe\n",
    ],
)
def test_a_damaged_line_is_set_aside_told_once_and_counts_as_the_dearest_call(tmp_path, caplog, damage):
    path, clock = tmp_path / "ledger.jsonl", FakeClock()
    ledger = Ledger(LimitsConfig(), path, clock)
    ledger.settle(ledger.reserve(5, 0.5), 5, 0.4)
    crash(ledger)
    before = path.read_bytes()
    path.write_bytes(before + damage + b'{"reserve": 2, "at": 1.0, "tokens": 3, "dollars": 0.7}\n{"torn')
    with pytest.raises(UsageError, match=r"ledger.jsonl, line 3 is damaged"):
        read(path)
    ledger = Ledger(LimitsConfig(tokens=14), path, clock)
    assert (ledger.tokens, ledger.dollars) == (5 + 3 + 5, 1.8)
    assert (tmp_path / "ledger.damaged.jsonl").read_bytes() == damage
    with pytest.raises(OutOfBudget):
        ledger.reserve(2, 0.0)
    with pytest.raises(UsageError, match="written by another service"):
        Ledger(LimitsConfig(), path, clock)
    ledger.release(ledger.reserve(1, 0.0))
    ledger.close()
    assert path.read_bytes().startswith(before)
    assert Ledger(LimitsConfig(), path, clock).tokens == read(path).tokens == 13
    (told,) = (record.getMessage() for record in caplog.records)
    assert told.startswith(f"1 damaged line of {path} is set aside in ledger.damaged.jsonl; ")
    assert "5 tokens and 0.7 dollars count as spent" in told


def test_one_writer(tmp_path):
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(LimitsConfig(), path, FakeClock())
    with pytest.raises(UsageError, match="written by another service"):
        Ledger(LimitsConfig(), path, FakeClock())
    ledger.reserve(3, 0.0)
    assert read(path).tokens == 3, "reading needs no lock"
    ledger.close()
    assert Ledger(LimitsConfig(), path, FakeClock()).tokens == 3
    with pytest.raises(OutOfBudget, match="it is closed"):
        ledger.reserve(1, 0.0)


@pytest.mark.parametrize("dollars", [float("nan"), float("inf"), -0.01])
def test_amounts_that_cannot_be_counted_are_refused(dollars, tmp_path):
    ledger = Ledger(LimitsConfig(dollars=1.0), tmp_path / "ledger.jsonl", FakeClock())
    with pytest.raises(ValueError):
        ledger.reserve(1, dollars)
    with pytest.raises(ValidationError):
        LimitsConfig(dollars=dollars)


def test_a_full_disk_forbids_calls_but_loses_no_answer(tmp_path, monkeypatch):
    path, clock = tmp_path / "ledger.jsonl", FakeClock()
    ledger = Ledger(LimitsConfig(), path, clock)
    first = ledger.reserve(10, 0.1)
    written, write = path.read_bytes(), os.write
    disk = {"room": 5}

    def full(file, data):
        if not disk["room"]:
            raise OSError(28, "No space left on device")
        disk["room"] = 0
        return write(file, data[:5])  # the disk fills up in the middle of the line

    monkeypatch.setattr(os, "write", full)
    ledger.settle(first, 4, 0.04)
    assert ledger.tokens == 4
    with pytest.raises(OutOfBudget, match="No space left on device; no call is sent without a record"):
        ledger.reserve(1, 0.0)
    assert path.read_bytes() == written, "no half line stands in the file"
    monkeypatch.undo()
    ledger.reserve(1, 0.0)
    assert vars(read(path)) == vars(read(path))
    ledger.close()
    again = Ledger(LimitsConfig(), path, clock)
    assert (again.tokens, still_open(again)) == (5, 1)


def test_totals_of_a_file(tmp_path):
    path, clock = tmp_path / "ledger.jsonl", FakeClock()
    with pytest.raises(UsageError, match="cannot read"):
        read(path)
    ledger = Ledger(LimitsConfig(), path, clock)
    ledger.settle(ledger.reserve(10, 0.2), 8, 0.1)
    clock.pass_(4000)
    ledger.release(ledger.reserve(10, 0.2))
    ledger.reserve(1, 0.05)
    spent = read(path)
    assert (spent.calls, spent.tokens, spent.dollars) == (2, 9, 0.15)
    ledger.close()
    again = Ledger(LimitsConfig(), path, clock)
    assert (still_open(again), this_hour(again)) == (1, (1, 0.05))


class LedgerMachine(RuleBasedStateMachine):
    """Any interleaving of reservations, settlements, releases, crashes and time, against plain sums.

    What a call costs is drawn when it is reserved; the money is really gone as soon as it is sent.
    """

    @initialize(
        tokens=st.none() | st.integers(0, 300),
        hourly=st.none() | st.integers(0, 200),
        cents=st.none() | st.integers(0, 300),
        hourly_cents=st.none() | st.integers(0, 200),
    )
    def start(self, tokens, hourly, cents, hourly_cents):
        import tempfile

        self.folder = tempfile.TemporaryDirectory()
        self.path, self.clock = Path(self.folder.name) / "ledger.jsonl", FakeClock()
        self.config = LimitsConfig(
            tokens=tokens,
            tokens_per_hour=hourly,
            dollars=None if cents is None else cents / 100,
            dollars_per_hour=None if hourly_cents is None else hourly_cents / 100,
        )
        self.ledger = Ledger(self.config, self.path, self.clock)
        self.open = {}  # number -> entry
        self.entries = []  # [at, tokens really spent, cents really spent, tokens counted, cents counted]

    @rule(tokens=st.integers(0, 60), cents=st.integers(0, 60), part=st.floats(0, 1))
    def reserve(self, tokens, cents, part):
        used, paid = int(tokens * part), int(cents * part)
        try:
            number = self.ledger.reserve(tokens, cents / 100)
        except OutOfBudget:
            assert self.would_pass(tokens, cents), "a call that fits every cap is never refused"
            return
        assert number not in self.open
        entry = [self.clock.wall(), used, paid, tokens, cents]
        self.open[number] = entry
        self.entries.append(entry)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def settle(self, data):
        number = data.draw(st.sampled_from(sorted(self.open)))
        entry = self.open.pop(number)
        entry[3:] = entry[1:3]
        self.ledger.settle(number, entry[1], entry[2] / 100)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def release(self, data):
        number = data.draw(st.sampled_from(sorted(self.open)))
        entry = self.open.pop(number)
        entry[1:] = [0, 0, 0, 0]
        self.ledger.release(number)

    @rule(torn=st.binary(max_size=30))
    def crash(self, torn):
        crash(self.ledger)
        with self.path.open("ab") as file:
            file.write(torn.replace(b"\n", b""))
        self.ledger = Ledger(self.config, self.path, self.clock)
        self.open = {}

    @rule(seconds=st.sampled_from([1.0, 600.0, 1800.0, 3600.0]))
    def time_passes(self, seconds):
        self.clock.pass_(seconds)

    def recent(self):
        return [e for e in self.entries if e[0] > self.clock.wall() - 3600]

    def would_pass(self, tokens, cents):
        c = self.config
        return any(
            cap is not None and sum(e[column] for e in entries) + more > round(cap * unit)
            for cap, entries, column, more, unit in (
                (c.tokens, self.entries, 3, tokens, 1),
                (c.dollars, self.entries, 4, cents, 100),
                (c.tokens_per_hour, self.recent(), 3, tokens, 1),
                (c.dollars_per_hour, self.recent(), 4, cents, 100),
            )
        )

    @invariant()
    def no_cap_is_passed(self):
        if not hasattr(self, "ledger"):
            return
        c = self.config
        assert c.tokens is None or sum(e[1] for e in self.entries) <= c.tokens
        assert c.dollars is None or sum(e[2] for e in self.entries) <= round(c.dollars * 100)
        assert c.tokens_per_hour is None or sum(e[1] for e in self.recent()) <= c.tokens_per_hour
        assert c.dollars_per_hour is None or sum(e[2] for e in self.recent()) <= round(c.dollars_per_hour * 100)

    @invariant()
    def the_book_is_the_reference(self):
        if not hasattr(self, "ledger"):
            return
        ledger = self.ledger
        assert ledger.tokens == sum(e[3] for e in self.entries)
        assert round(ledger.dollars * 100) == sum(e[4] for e in self.entries)
        tokens, dollars = this_hour(ledger)
        assert tokens == sum(e[3] for e in self.recent())
        assert round(dollars * 100) == sum(e[4] for e in self.recent())

    def teardown(self):
        if hasattr(self, "ledger"):
            self.ledger.close()
            self.folder.cleanup()


LedgerMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestLedger = LedgerMachine.TestCase


WRITER = """
import sys
from pathlib import Path
from llm_service.pipeline.clock import Clock
from llm_service.pipeline.ledger import Ledger
from llm_service.pipeline.limits import LimitsConfig
ledger = Ledger(LimitsConfig(), Path(sys.argv[1]), Clock())
while True:
    number = ledger.reserve(3, 0.003)
    print("sent", flush=True)
    ledger.settle(number, 2, 0.002)
    print("done", flush=True)
"""


def test_kill_9_loses_nothing_that_was_reserved(tmp_path):
    path = tmp_path / "ledger.jsonl"
    sent = done = 0
    for lines in (1, 2, 117, 400):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
        said = [writer.stdout.readline().strip() for _ in range(lines)]
        writer.kill()
        said += writer.stdout.read().split()
        writer.wait()
        sent, done = sent + said.count("sent"), done + said.count("done")
        spent, written = read(path), path.read_text()
        unsettled = spent.calls - written.count('"settle"')
        # Up to the moment of the kill one line may have been written that was not yet told.
        assert sent <= spent.calls <= sent + 1
        sent = spent.calls
        assert spent.tokens == 2 * (spent.calls - unsettled) + 3 * unsettled
        assert spent.calls - unsettled >= done
        done = spent.calls - unsettled
    assert all(json.loads(line) for line in path.read_text().splitlines())
