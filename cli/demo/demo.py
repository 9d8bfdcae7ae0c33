"""The demo: a short story in commands, each of which runs as a user would run it.

Nothing in it is made up: a step is the command line shown, and what follows is what it printed. So the demo cannot show
what does not work, and whoever likes a step can type it.
"""

from __future__ import annotations

import contextlib
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

from tidelog.api.errors import InternalError, UsageError
from tidelog.cli.demo import daemon as demo_daemon
from tidelog.cli.demo import devices as demo_devices
from tidelog.cli.demo import gangs as demo_gangs
from tidelog.cli.demo import preemption as demo_preemption
from tidelog.cli.demo import spread as demo_spread
from tidelog.cli.demo import volumes as demo_volumes
from tidelog.cli.main import main
from tidelog.cli.shipped import folder
from tidelog.cli.terminal import colourful

INDENT = "    "


def tell(log: Path | None) -> None:
    """Run the story on a new log, at this path or in a directory for temporary files."""
    if log is not None and log.exists():
        raise UsageError(f"{log} is there already: the demo needs a log of its own")
    if log is None:
        log = Path(tempfile.mkdtemp(prefix="tidelog-demo-")) / "cluster.db"
    story = _Story(log)
    examples = folder("examples")
    _tell(story, examples)
    demo_daemon.tell(story, log, examples, _shown)
    story.say(
        "When a zone has no room",
        "Spread constraints that fall back, with an autoscaler; on a virtual clock:",
    )
    demo_spread.tell()
    story.say(
        "A promise that is kept",
        "Preemption with a guarded disruption budget, with a disruption controller and node agents:",
    )
    demo_preemption.tell()
    story.say("All or nothing", "Gangs that are placed whole, into one rack:")
    demo_gangs.tell()
    story.say("Where the data are", "Pods whose volumes keep them in their zones, with a volume controller:")
    demo_volumes.tell()
    story.say("Two GPUs each, of one host", "A gang whose pods claim devices (DRA):")
    demo_devices.tell()
    story.say("The log", f"It is {log}, one file with its head beside it. Go on with it:")
    print(f"{INDENT}export TIDELOG_LOG={shlex.quote(str(log))}")
    program = "tidelog" if shutil.which("tidelog") else _shown(Path(sys.argv[0]))
    for words in ("get pods -o yaml", "log show 10", "page --open", "--help"):
        print(f"{INDENT}{program} {words}")


def _tell(story: _Story, examples: Path) -> None:
    story.say(
        "A cluster",
        "Tidelog knows a cluster from what its log was told. Here are six nodes in three zones, two priority "
        "classes, a disruption budget, and four pods. All of it enters, or nothing.",
    )
    story.run("apply", "-f", _shown(examples))
    story.say("What it knows now", "Two nodes take batch work only, and one is cordoned:")
    story.run("get", "nodes")
    story.run("get", "pods")
    story.say(
        "A mistake",
        "This pod breaks three rules. It is refused with all of them at once, and nothing is changed:",
    )
    story.run("apply", "-f", _shown(examples / "refused" / "pod.yaml"), expected=1)
    story.say("A change", "A pod goes away, and the cluster autoscaler has news for another:")
    story.run("delete", "pod", "web-3")
    story.run(
        *("patch-condition", "pod", "web-2", "--type", "NodeProvisioningInProgress", "--status", "True"),
        *("--reason", "NodeOrdered"),
    )
    story.say("The record", "Everything that happened is a record. The last ones:")
    story.run("log", "tail", "-n", "4")
    story.say("The past", "So the past is still there. The pods as they were after record 13:")
    story.run("get", "pods", "--at", "13")
    story.say(
        "The proof",
        "Each record carries a digest of the one before, and the head file says where the log ends: nothing "
        "can be lost, changed or reordered unnoticed.",
    )
    story.run("log", "verify", "--rebuild")


def _shown(path: Path) -> str:
    """As somebody in this directory would type it."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


class _Story:
    """Prints what is said and what is run."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._colour = colourful()

    def say(self, title: str, text: str) -> None:
        """A heading and a sentence or two."""
        import textwrap

        print(f"\n{self._bold(title)}\n")
        print(textwrap.fill(text, 100))
        print()

    def run(self, *words: str, expected: int = 0) -> None:
        """Run a command as the user would; another end than expected is our fault."""
        print(f"{INDENT}{self._bold(f'$ tidelog {shlex.join(words)}')}", flush=True)
        # Errors are part of the story, so both streams go where it is told, in order.
        with contextlib.redirect_stderr(sys.stdout):
            code = main([*words, "--log", str(self._log)])
        print()
        if code != expected:
            raise InternalError(f"the demo's `tidelog {shlex.join(words)}` ended with {code}")

    def _bold(self, text: str) -> str:
        return f"\x1b[1m{text}\x1b[0m" if self._colour else text
