"""A process that holds a log as the daemon will: `python serving.py LOG serve|hold|stop`.

`serve` answers requests over the socket, `hold` only holds the lock, `stop` takes connections and never answers. It says
`ready` when it is, and ends with its standard input.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from tidelog.api.features import FeatureGates
from tidelog.daemon.intake.facts import FactService
from tidelog.eventlog.log import open_log
from tidelog.eventlog.socket import serve


async def never(_message: Any) -> None:
    await asyncio.sleep(3600)


async def main(path: str, manner: str) -> None:
    async with open_log(path, what="tidelog run") as log:
        server = None
        if manner != "hold":
            service = await FactService.start(log, FeatureGates())
            server = await serve(log, service.handle if manner == "serve" else never)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)
        if server is not None:
            await server.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
