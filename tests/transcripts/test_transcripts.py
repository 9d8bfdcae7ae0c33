"""Stories of the queue and of groups as transcripts: `README.md` tells how to read and how to change them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from tidelog.api.objects import Pod
from tidelog.cli.text.records import in_a_few_words
from tidelog.configuration.configuration import resolve_configuration
from tidelog.eventlog.records import decode_body
from tidelog.plugins.registry import Registry
from tidelog.replay.driver import Driver
from tidelog.replay.waits import queue_of
from tidelog.testing import builders as b

HERE = Path(__file__).parent
RACK = "rack"
CONFIGURATION = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "tidelog": {"featureGates": {"TopologyAwareWorkloadScheduling": True}},
}
FACTS = ("ObjectPut", "ObjectDeleted", "PodConditionSet")
KINDS = {"node": "Node//", "pod": "Pod/default/", "group": "PodGroup/default/"}


class Stage:
    """A scheduler that is told what to do in words."""

    def __init__(self) -> None:
        self.driver = Driver()
        self.driver.start(resolve_configuration(CONFIGURATION, Registry()).configuration)
        self.told = len(self.driver.records)

    def do(self, line: str) -> None:
        """Carry out a command."""
        verb, *words = line.split()
        commands: dict[str, Callable[..., None]] = {
            "node": self.node,
            "pod": self.pod,
            "group": self.group,
            "delete": self.delete,
            "ungate": self.ungate,
            "attempt": lambda: self.driver.attempt() and None,
            "commit": lambda: self.driver.commit() and None,
            "settle": lambda: self.driver.settle() and None,
            "wait": lambda seconds: self.driver.advance(float(seconds)),
        }
        commands[verb](*words)

    def node(self, name: str, *words: str) -> None:
        given = options(words)
        made = b.node(name).capacity(cpu=given.get("cpu", "4"))
        if "rack" in given:
            made = made.label({RACK: given["rack"]})
        self.driver.put((made.cordon() if "cordoned" in given else made).build())

    def pod(self, name: str, *words: str) -> None:
        given = options(words)
        made = b.pod(name).scheduler("default-scheduler").request(cpu=given.get("cpu", "1"))
        made = made.priority(int(given.get("priority", "0")))
        if "group" in given:
            made = made.group(given["group"])
        if "gate" in given:
            made = made.gate(given["gate"])
        self.driver.put(made.build())

    def group(self, name: str, *words: str) -> None:
        given = options(words)
        self.driver.put(b.pod_group(name, min_count=int(given["min"]), level=given.get("level")))

    def delete(self, kind: str, name: str) -> None:
        self.driver.delete(self.driver.core.objects[KINDS[kind] + name])

    def ungate(self, name: str) -> None:
        pod = self.driver.pod(name)
        self.driver.put(replace(pod, spec=replace(pod.spec, scheduling_gates=())))

    def tell(self) -> Iterator[str]:
        """Yield what the scheduler has done since it was asked last, and where every pending pod is."""
        for record in self.driver.records[self.told :]:
            if record.kind not in FACTS:
                words = in_a_few_words(decode_body(record), record.at)
                yield f"record {record.seq}  {record.kind} {record.key}  {words}".rstrip()
        self.told = len(self.driver.records)
        for row in sorted(queue_of(self.driver.core), key=lambda row: row.key):
            yield f"{row.key.removeprefix('default/')}: {row.waits.place}"
        for pod in self.driver.core.objects.values():
            if isinstance(pod, Pod) and pod.spec.node_name:
                yield f"{pod.metadata.name}: on {pod.spec.node_name}"


def options(words: tuple[str, ...]) -> dict[str, str]:
    """Read `cpu=4 cordoned`."""
    return {name: value for name, _, value in (word.partition("=") for word in words)}


def played(text: str) -> str:
    """Return the transcript with what the scheduler does now."""
    stage, lines, in_output = Stage(), [], False
    for line in text.splitlines():
        if line == "----":
            lines += [line, *(stage.tell())]
            in_output = True
        elif not line or line.startswith("#"):
            lines.append(line)
            in_output = False
        elif not in_output:
            stage.do(line)
            lines.append(line)
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("path", sorted(HERE.glob("*.txt")), ids=lambda path: path.stem)
def test_story_goes_as_it_is_told(path: Path) -> None:
    text = path.read_text()

    now = played(text)

    if os.environ.get("REWRITE_TRANSCRIPTS"):
        path.write_text(now)
    else:
        assert now == text
