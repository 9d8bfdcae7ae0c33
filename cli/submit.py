"""How a command gets its facts into a log: by appending them itself, or through whoever holds the log.

With no writer the command takes the lock, appends, and lets go. While a daemon runs, the facts go to it over its socket, or through the database,
and the same service in the daemon does the same (`tidelog.daemon.intake.facts`). So do those of a user who may not take the lease of a log in a
database. Another command that holds the lock is waited for, since it is done in a moment; a holder that does not answer is named.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING

from tidelog.api.errors import LogError, LogForbidden, LogLocked
from tidelog.api.features import FeatureGates
from tidelog.cli.terminal import notice
from tidelog.daemon.intake.facts import FactService
from tidelog.daemon.intake.messages import Answer, Facts, read_answer, write_request
from tidelog.eventlog.address import LogAddress, is_database
from tidelog.eventlog.lock import read_holder
from tidelog.eventlog.log import Log, memory_log, open_log
from tidelog.eventlog.objects import SNAPSHOT
from tidelog.eventlog.opening import log_path
from tidelog.eventlog.socket import HandoverClient, NoWriter, connect

if TYPE_CHECKING:
    from tidelog.cli.progress import Progress
    from tidelog.eventlog.postgres.mailbox import MailboxClient

LOCK_SECONDS = 3.0
"""How long to wait for a holder without a socket: longer than any command takes."""
ANSWER_SECONDS = 60.0
"""How long to wait for a holder's answer."""
POLL_SECONDS = 0.05
SNAPSHOT_EACH = 50_000
"""A command that had to read so many records leaves a snapshot for the next one; about half a second of reading."""


async def submit(
    path: LogAddress,
    facts: Facts,
    *,
    verb: str,
    create: bool = True,
    dry_run: bool = False,
    gates: FeatureGates | None = None,
    progress: Progress | None = None,
) -> Answer:
    """Get the facts into the log at `path`; answered when they are durable. With `create` it may be a new log.

    They are admitted under `gates`, by default those that the log's last scheduler had.

    Raises Refused when they break rules; then nothing was changed, and no log made.
    """
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            return await _append(path, facts, verb, create, dry_run, gates, progress)
        except (LogLocked, LogForbidden) as kept_out:
            try:
                client = await connect(path)
            except NoWriter as nobody:
                if isinstance(kept_out, LogForbidden):  # It may hand in facts at most, to whoever leads.
                    raise LogForbidden(kept_out.path, f"{kept_out.reason}, and {nobody.reason}") from kept_out
                if time.monotonic() > deadline:
                    raise kept_out from None
                await asyncio.sleep(POLL_SECONDS)
                continue
            return await _hand_over(path, client, facts, dry_run, gates)


async def _append(
    path: LogAddress,
    facts: Facts,
    verb: str,
    create: bool,
    dry_run: bool,
    gates: FeatureGates | None,
    progress: Progress | None,
) -> Answer:
    """By ourselves, holding the lock."""
    is_new = create and _is_new(path)
    if is_new:
        # Whatever is refused must not leave a log behind.
        answer = await _try_on_empty(facts, gates)
        if dry_run:
            return answer
    async with open_log(path, create=create, what=f"tidelog {verb}") as log:
        if is_new:
            notice(f"new log {path}")
        if progress is not None:
            log.on_read = progress.then("reading the log")
        service = await FactService.start(log, gates)
        told = None if progress is None else progress.then(verb, "objects")
        answer = await service.submit(facts, dry_run=dry_run, progress=told)
        await _keep_snapshot(log, service)
        return answer


def _is_new(path: LogAddress) -> bool:
    return not is_database(path) and not os.path.exists(path)


async def _try_on_empty(facts: Facts, gates: FeatureGates | None) -> Answer:
    async with await memory_log() as log:
        service = await FactService.start(log, gates)
        return await service.submit(facts, dry_run=True)


async def _keep_snapshot(log: Log, service: FactService) -> None:
    """Spare the next command what this one had to read."""
    newest = max((s.seq for s in await log.snapshots() if s.name == SNAPSHOT), default=log.anchor.seq)
    if log.head.seq - newest >= SNAPSHOT_EACH:
        await service.catch_up()
        await log.put_snapshot(SNAPSHOT, service.objects.seq, service.objects.encode())


async def _hand_over(
    path: LogAddress,
    client: HandoverClient | MailboxClient,
    facts: Facts,
    dry_run: bool,
    gates: FeatureGates | None,
) -> Answer:
    """Through the process that holds the lock."""
    request = write_request(facts, dry_run=dry_run, gates=gates)
    async with client:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return read_answer(await client.request(request))
        except TimeoutError:
            holder = "its leader" if is_database(path) else read_holder(log_path(path))
            raise LogError(
                f"{path}: the log is being written by {holder}, which has not answered for {ANSWER_SECONDS:.0f} s; "
                "whether it will still do what was asked, `tidelog get` shows: look after that process"
            ) from None
