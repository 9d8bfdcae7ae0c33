"""Ports for processes that must be told one: what neither the system nor another worker of the tests gives to anybody else.

A port that the system found free may be given away again before the process binds it, or while it is restarted. The system gives out
those from 32768 on; these are below, and each process of tests begins at a place of its own.
"""

from __future__ import annotations

import itertools
import os
import socket

FIRST, END = 20_000, 32_000

_next = itertools.count(os.getpid() * 61)


def free_port() -> int:
    """One that nobody listens on, and that is not returned again for long."""
    while True:
        port = FIRST + next(_next) % (END - FIRST)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
