"""The lease: one process writes, whoever was superseded cannot, wherever its clock is."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

import asyncpg
import pytest

from tests.patience import PATIENCE, until
from tests.postgres.conftest import Logs
from tests.postgres.proxy import Proxy
from tests.postgres.server import PostgresServer
from tidelog.api.errors import LogDamaged, LogError, LogLocked, LogUnreachable
from tidelog.daemon.process.clock import SystemClock
from tidelog.daemon.process.place import place_of
from tidelog.daemon.process.standby import Standby
from tidelog.eventlog.log import Log, open_log
from tidelog.eventlog.postgres.reading import examine
from tidelog.eventlog.postgres.schema import initialize
from tidelog.eventlog.postgres.store import PostgresStore
from tidelog.eventlog.postgres.watch import LeaseWatch
from tidelog.eventlog.reader import open_reader
from tidelog.eventlog.records import Draft, LossAccepted, Tick, decode_body
from tidelog.eventlog.repair import repair
from tidelog.eventlog.status import log_status
from tidelog.eventlog.store import Head
from tidelog.eventlog.verify import verify
from tidelog.plugins.registry import installed_plugins

TICK = [Draft(body=Tick(), author="cluster")]


async def usurp(url: str, what: str = "the second") -> Log:
    """Take the lease although its holder is well, as if it had not renewed it for long."""
    address, _, schema = url.partition("?schema=")
    connection = await asyncpg.connect(address)
    try:
        while True:
            await connection.execute(
                f"UPDATE {schema.partition('&')[0]}.lease SET expires = clock_timestamp() - interval '1 hour'"
            )
            with contextlib.suppress(LogLocked):  # It was renewed in between.
                return await open_log(url, what=what)
    finally:
        await connection.close()


async def until_one_waits(connection: Any) -> None:
    """Return when some statement waits for another's lock."""
    async with asyncio.timeout(PATIENCE):
        waiting = 0
        while not waiting:
            waiting = await connection.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted")


async def test_second_writer_is_told_who_holds_the_lease(logs: Logs) -> None:
    url = await logs.new()
    async with open_log(url, what="the first"):
        with pytest.raises(LogLocked, match="the first"):
            await open_log(url, what="the second")


async def test_lease_is_free_at_once_after_closing(logs: Logs) -> None:
    url = await logs.new()
    async with open_log(url) as log:
        await log.append(TICK)
    async with open_log(url) as log:
        assert log.head.seq == 1


async def test_writer_that_was_superseded_cannot_append(logs: Logs) -> None:
    url = await logs.new()
    first = await open_log(url, what="the first")
    await first.append(TICK)
    second = await usurp(url)

    with pytest.raises(LogError, match=r"the second.* took it over"):
        await first.append(TICK)
    await second.append(TICK)

    assert second.head.seq == 2
    with pytest.raises(LogError, match="took it over"):
        await first.append(TICK)
    await first.close()
    await second.append(TICK)
    await second.close()


async def test_writer_that_was_superseded_writes_no_snapshot_and_drops_nothing(logs: Logs) -> None:
    url = await logs.new()
    first = await open_log(url, what="the first")
    await first.append(TICK)
    await first.put_snapshot("a", 1, b"state")
    async with await usurp(url) as second:
        with pytest.raises(LogError, match="took it over"):
            await first.put_snapshot("b", 1, b"other")
        with pytest.raises(LogError, match="took it over"):
            await first.compact(1)

        assert [info.name for info in await second.snapshots()] == ["a"]
        assert second.anchor.seq == 0
    await first.close()


async def test_idle_writer_notices_that_it_was_superseded(logs: Logs) -> None:
    url = await logs.new() + "&lease=500ms"
    first = await open_log(url)
    second = await usurp(url)

    async def checked() -> None:
        while True:
            await first.check()
            await asyncio.sleep(0.05)

    with pytest.raises(LogError, match="took it over"):
        await asyncio.wait_for(checked(), PATIENCE)
    await first.close()
    await second.close()


async def test_append_that_waits_while_the_lease_is_taken_is_refused(logs: Logs) -> None:
    """The race that fencing is about: the statement has begun when another transaction takes the lease, and waits for it."""
    url = await logs.new()
    address, _, schema = url.partition("?schema=")
    log = await open_log(url)
    other = await asyncpg.connect(address)
    taking = other.transaction()
    await taking.start()
    await other.execute(
        f"UPDATE {schema}.lease SET term = term + 1, expires = clock_timestamp() + interval '1 hour'"
    )

    append = asyncio.create_task(log.append(TICK))
    await until_one_waits(other)
    await taking.commit()

    with pytest.raises(LogError, match="took it over"):
        await append
    assert await other.fetchval(f"SELECT count(*) FROM {schema}.records") == 0
    await other.close()
    await log.close()


async def append_under_way(logs: Logs) -> tuple[Any, Any, str, Any]:
    """Two connections to a log, its schema, and a transaction of the first that holds the lease as an append does."""
    url = await logs.new()
    address, _, schema = url.partition("?schema=")
    one, two = await asyncpg.connect(address), await asyncpg.connect(address)
    appending = one.transaction()
    await appending.start()
    await one.fetchrow(f"SELECT term FROM {schema}.lease WHERE term = 0 FOR KEY SHARE")
    return one, two, schema, appending


async def test_lease_cannot_be_taken_while_an_append_commits(logs: Logs) -> None:
    """The other order: the append holds the lease, and whoever takes it then sees the record."""
    one, two, schema, appending = await append_under_way(logs)

    taking = asyncio.create_task(two.execute(f"UPDATE {schema}.lease SET term = term + 1"))
    await until_one_waits(one)
    assert not taking.done()
    await appending.commit()
    await taking

    for connection in (one, two):
        await connection.close()


async def test_renewal_does_not_wait_for_an_append(logs: Logs) -> None:
    one, two, schema, appending = await append_under_way(logs)

    async with asyncio.timeout(PATIENCE):
        await two.execute(
            f"UPDATE {schema}.lease SET renewed = renewed + 1, expires = clock_timestamp() WHERE term = 0"
        )

    await appending.commit()
    for connection in (one, two):
        await connection.close()


@pytest.mark.parametrize("hours", [-5, 5])
async def test_clocks_hours_apart_neither_take_the_lease_nor_go_back(hours: int, logs: Logs) -> None:
    url = await logs.new()
    shift = hours * 3600 * 10**9
    async with open_log(url) as log:
        (before,) = await log.append(TICK)
        with pytest.raises(LogLocked):
            await open_log(url, clock=lambda: time.time_ns() + shift)
    async with open_log(url, clock=lambda: time.time_ns() + shift) as log:
        (after,) = await log.append(TICK)

    assert after.at >= before.at


async def test_status_names_leader_lease_and_end(logs: Logs) -> None:
    url = await logs.new()
    async with open_log(url, what="a test") as log:
        await log.append(TICK)
        await log.take_over("me")

        held = await log_status(url)
    free = await log_status(url)

    assert "a test" in held.leader
    assert not held.takes_facts
    assert held.lease is not None
    assert held.lease.seconds_left > 0
    assert (held.first, held.last, held.epoch, held.followers) == (1, 2, 1, ())
    assert (free.leader, free.lease is not None and free.lease.seconds_left) == ("", 0.0)


async def test_leader_counts_its_standbys(logs: Logs) -> None:
    url = await logs.new() + "&lease=500ms"
    store = await PostgresStore.open(url)
    watch = LeaseWatch(url, "a standby")
    with pytest.raises(LogLocked):
        await watch.check_free()
    await watch.followed(0)

    await until(lambda: store.lease.followers == 1)
    followers = (await log_status(url)).followers

    assert followers is not None
    assert [(follower.seq, follower.behind) for follower in followers] == [(0, 0)]
    assert "a standby" in followers[0].holder
    await watch.close()
    assert (await log_status(url)).followers == ()
    await store.close()


async def test_standby_is_woken_as_soon_as_the_lease_is_let_go_of(logs: Logs) -> None:
    url = await logs.new()
    log = await open_log(url)
    watch = LeaseWatch(url, "a standby")
    with pytest.raises(LogLocked):
        await watch.check_free()
    waits = asyncio.create_task(watch.wait(3600))
    await log.append(TICK)
    await asyncio.sleep(0.1)

    assert not waits.done()
    await log.close()
    await asyncio.wait_for(waits, PATIENCE)
    await watch.check_free()
    await watch.close()


async def test_lease_that_another_servers_clock_gave_is_free(logs: Logs) -> None:
    """A standby that was promoted may have a clock that is hours behind."""
    url = await logs.new()
    address, _, schema = url.partition("?schema=")
    connection = await asyncpg.connect(address)
    await connection.execute(
        f"UPDATE {schema}.lease SET holder = 'somebody', seconds = 2, expires = clock_timestamp() + interval '5 hours'"
    )
    await connection.close()

    async with open_log(url) as log:
        await log.append(TICK)


async def test_row_written_without_the_lease_stops_the_writer(logs: Logs) -> None:
    url = await logs.new()
    address, _, schema = url.partition("?schema=")
    log = await open_log(url)
    await log.append(TICK)
    other = await asyncpg.connect(address)
    await other.execute(f"UPDATE {schema}.head SET seq = seq + 1, digest = '\\x00'")

    with pytest.raises(LogError, match="somebody without its lease has written"):
        await log.append(TICK)
    await other.execute(f"UPDATE {schema}.head SET seq = r.seq, digest = r.digest FROM {schema}.records r")
    await other.close()
    await log.close()


# --- lost answers -------------------------------------------------------------------------------------------------------


async def _through(proxy: Proxy, url: str) -> str:
    address, _, rest = url.partition("?")
    head, _, tail = address.rpartition(":")
    return f"{head}:{proxy.port}/{tail.partition('/')[2]}?{rest}"


async def test_group_whose_answer_was_lost_is_acknowledged_once(logs: Logs, server: PostgresServer) -> None:
    url = await logs.new()
    async with Proxy(server.port) as proxy, open_log(await _through(proxy, url)) as log:
        await log.append(TICK)
        proxy.answers_lost = True
        append = asyncio.create_task(log.append(TICK))
        async with open_reader(url) as reader:
            while reader.head.seq < 2:
                await reader.reload()
        proxy.heal()
        proxy.cut()

        (record,) = await append
        (after,) = await log.append(TICK)

    assert (record.seq, after.seq) == (2, 3)


async def test_group_that_did_not_arrive_is_sent_again(logs: Logs, server: PostgresServer) -> None:
    url = await logs.new()
    async with Proxy(server.port) as proxy, open_log(await _through(proxy, url)) as log:
        await log.append(TICK)
        proxy.requests_lost = True
        append = asyncio.create_task(log.append(TICK))
        await asyncio.sleep(0.1)
        proxy.heal()
        proxy.cut()

        (record,) = await append

    assert record.seq == 2


async def test_group_whose_answer_was_lost_is_not_acknowledged_by_who_was_superseded(
    logs: Logs, server: PostgresServer
) -> None:
    """Its end cannot be told any more: the next leader's records are behind it, or in its place."""
    url = await logs.new()
    async with Proxy(server.port) as proxy:
        log = await open_log(await _through(proxy, url), what="the first")
        proxy.refusing = proxy.requests_lost = True
        append = asyncio.create_task(log.append(TICK))
        await asyncio.sleep(0.1)
        proxy.cut()
        async with await usurp(url) as second:
            await second.append(TICK)
            proxy.heal()

            with pytest.raises(LogError, match=r"the second.* took it over"):
                await append
        await log.close()


async def test_patience_ends(logs: Logs, server: PostgresServer) -> None:
    url = await logs.new() + "&patience=1s"
    async with Proxy(server.port) as proxy:
        log = await open_log(await _through(proxy, url))
        proxy.refusing = True
        proxy.cut()

        with pytest.raises(
            LogError, match=r"the database server was lost.* nothing more is written or acknowledged"
        ):
            await log.append(TICK)
        with pytest.raises(LogError, match="nothing more is written"):
            await log.append(TICK)
        with pytest.raises(LogUnreachable):
            await open_log(await _through(proxy, url))
        await log.close()


# --- a server that went back in time ------------------------------------------------------------------------------------


async def _drop_last(url: str, count: int) -> None:
    """As an older copy of the server would look like."""
    address, _, schema = url.partition("?schema=")
    schema = schema.partition("&")[0]
    connection = await asyncpg.connect(address)
    async with connection.transaction():
        await connection.execute(
            f"DELETE FROM {schema}.records WHERE seq > (SELECT seq FROM {schema}.head) - {count}"
        )
        await connection.execute(
            f"UPDATE {schema}.head SET seq = r.seq, at = r.at, digest = r.digest FROM "
            f"(SELECT * FROM {schema}.records ORDER BY seq DESC LIMIT 1) r"
        )
    await connection.close()


async def test_writer_notices_that_the_server_went_back(logs: Logs) -> None:
    url = await logs.new()
    log = await open_log(url)
    for _ in range(5):
        await log.append(TICK)
    await _drop_last(url, 2)

    with pytest.raises(LogError, match=r"records 4 to 5 are missing .*the log ends at record 3"):
        await log.append(TICK)

    assert isinstance(log.failure, LogDamaged)
    assert (log.failure.first, log.failure.last) == (4, 5)
    await log.close()


async def test_server_that_is_replaced_while_the_log_is_opened_is_looked_at_again(
    logs: Logs, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """By an older copy, of which this machine knows nothing: nothing is wrong with that."""
    url = await logs.new()
    async with open_log(url) as log:
        for _ in range(5):
            await log.append(TICK)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("other")))
    examined: list[int] = []

    async def replaced(session: Any, name: str, anchor: Head, head: Head, depth: int) -> None:
        if not examined:
            await _drop_last(url, 2)
        examined.append(head.seq)
        await examine(session, name, anchor, head, depth)

    monkeypatch.setattr("tidelog.eventlog.postgres.reading.examine", replaced)
    async with open_log(url) as log:
        await log.append(TICK)

        assert log.head.seq == 4
    assert examined == [5, 3]


async def test_log_that_went_back_is_refused_until_the_loss_is_accepted(logs: Logs) -> None:
    url = await logs.new()
    async with open_log(url) as log:
        for _ in range(5):
            await log.append(TICK)
    await _drop_last(url, 2)

    for opening in (open_log, open_reader):
        with pytest.raises(LogDamaged, match="records 4 to 5"):
            await opening(url)
    with pytest.raises(LogDamaged):
        await repair(url, accept_loss=False)
    done = await repair(url, accept_loss=True)
    async with open_log(url) as log:
        await log.append(TICK)
        kinds = [record.kind async for record in log.read()]

    assert (done.kept, done.lost_last) == (3, 5)
    assert kinds == ["Tick", "Tick", "Tick", "LossAccepted", "Tick"]


@pytest.mark.parametrize("when", ["before it stood by", "while it stands by"])
async def test_standby_that_knew_more_ends_while_another_machine_leads(
    when: str, logs: Logs, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    url = await logs.new()
    async with open_log(url) as log:
        for _ in range(5):
            await log.append(TICK)
    if when == "before it stood by":
        await _drop_last(url, 2)
    with monkeypatch.context() as there:
        there.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("other")))
        leader = await open_log(url)
    place = place_of(url, "tidelog run")
    standby = Standby(place, installed_plugins(), SystemClock(), what="tidelog run")
    standing_by = asyncio.create_task(standby.take_over())
    if when == "while it stands by":
        await until_it_follows(url, 5)
        await _drop_last(url, 2)

    with pytest.raises(LogDamaged, match="records 4 to 5 are missing"):
        await asyncio.wait_for(standing_by, PATIENCE)

    await place.close()
    await leader.close()


async def until_it_follows(url: str, seq: int) -> None:
    """Return when a standby has read so far."""
    async with asyncio.timeout(PATIENCE):
        while True:
            if [one.seq for one in (await log_status(url)).followers or ()] == [seq]:
                return
            await asyncio.sleep(0.05)


async def test_another_machine_that_knew_more_accepts_a_loss_that_was_accepted(
    logs: Logs, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    url = await logs.new()
    async with open_log(url) as log:
        for _ in range(5):
            await log.append(TICK)
    await _drop_last(url, 2)
    with monkeypatch.context() as here:
        here.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("other")))
        assert (await repair(url, accept_loss=True)).reason == ""  # That machine knows of no loss.
        async with open_log(url) as log:
            await log.append(TICK)

    with pytest.raises(LogDamaged):
        await open_log(url)
    done = await repair(url, accept_loss=True)
    async with open_log(url) as log:
        await log.append(TICK)

    assert (done.kept, done.lost_last) == (4, 5)


async def test_damaged_record_is_found_and_repaired(logs: Logs) -> None:
    url = await logs.new()
    address, _, schema = url.partition("?schema=")
    async with open_log(url) as log:
        for _ in range(6):
            await log.append(TICK)
    connection = await asyncpg.connect(address)
    await connection.execute(f"UPDATE {schema}.records SET author = 'x' WHERE seq = 3")

    async with open_reader(url) as reader:
        with pytest.raises(LogDamaged, match="record"):
            await verify(reader)
    done = await repair(url, accept_loss=True)
    async with open_reader(url) as reader:
        found = await verify(reader)

    assert (done.kept, done.lost_last, done.backup) == (2, 6, f"{schema}.damaged_1")
    assert (found.records, found.storage) == (3, ())
    assert await connection.fetchval(f"SELECT count(*) FROM {schema}.damaged_1") == 4
    await connection.close()


@pytest.mark.unreplayed("the snapshots are made by hand")
@pytest.mark.parametrize("damaged", [6, 10])
async def test_log_damaged_before_its_oldest_state_begins_at_that_state(logs: Logs, damaged: int) -> None:
    url = await logs.new()
    address, _, schema = url.partition("?schema=")
    async with open_log(url) as log:
        for _ in range(20):
            await log.append(TICK)
        for name in ("objects", "scheduler"):
            await log.put_snapshot(name, 12, b"the state")
        await log.compact(4)
        records = [record async for record in log.read()]
    connection = await asyncpg.connect(address)
    await connection.execute(f"UPDATE {schema}.records SET author = 'x' WHERE seq = {damaged}")

    done = await repair(url, accept_loss=True)

    assert (done.kept, done.lost_last, done.begins) == (20, 20, 12)
    assert await connection.fetchval(f"SELECT count(*) FROM {done.backup}") == 8
    await connection.close()
    async with open_reader(url) as reader:
        *left, loss = [record async for record in reader.read()]
        assert left == records[8:]
        body = decode_body(loss)
        assert isinstance(body, LossAccepted)
        assert (body.first, body.last, body.reason) == (5, 12, done.reason)
        assert (reader.anchor.seq, reader.anchor.at) == (12, records[7].at)
        assert await reader.snapshot("scheduler") is not None
        assert (await verify(reader)).storage == ()


@pytest.mark.unreplayed("the snapshots are made by hand")
async def test_log_damaged_behind_a_state_begins_where_it_did(logs: Logs) -> None:
    url = await logs.new()
    address, _, schema = url.partition("?schema=")
    async with open_log(url) as log:
        for _ in range(20):
            await log.append(TICK)
        for seq in (8, 12):
            await log.put_snapshot("objects", seq, b"the state")
        await log.compact(4)
    connection = await asyncpg.connect(address)
    await connection.execute(f"UPDATE {schema}.records SET author = 'x' WHERE seq = 10")
    await connection.close()

    done = await repair(url, accept_loss=True)

    assert (done.kept, done.lost_last, done.begins) == (9, 20, 0)


# --- what the server says of itself -------------------------------------------------------------------------------------


async def test_settings_that_promise_less_are_named() -> None:
    server = PostgresServer({"fsync": "off", "full_page_writes": "off"})
    try:
        server.start()
        found = (await initialize(server.url())).server.warnings
    finally:
        server.destroy()

    assert [warning.split()[0] for warning in found] == ["fsync", "full_page_writes"]


async def test_wait_for_the_standbys_that_was_cancelled_is_made_up_for(
    logs: Logs, server: PostgresServer
) -> None:
    """PostgreSQL answers such a commit as if all was well, with a warning."""
    url = await logs.new()
    store = await PostgresStore.open(url)
    log = Log(store)
    store._writer.unconfirmed = True
    before = (await log_status(url)).lease

    await log.append(TICK)

    assert not store._writer.unconfirmed
    assert before is not None
    await log.close()
