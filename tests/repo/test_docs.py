"""The documents tell the truth, are found, and hold nothing that belongs elsewhere."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.patience import PATIENCE, wait_until
from tidelog.cli import main as cli

ROOT = Path(__file__).resolve().parents[2]
TEXT_SUFFIXES = {".md", ".py", ".toml", ".yaml", ".yml", ".json", ".txt", ".sh", ".service", ".cfg", ""}
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
MACHINE_PATHS = re.compile(r"(?<![\w.])/(?:work|root|home/\w+|Users/\w+|tmp/\w[\w.-]*)(?:/|\b)")


def tracked() -> list[Path]:
    """The files that git has, as far as they are there."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    files = [ROOT / name for name in listed.stdout.split("\0") if name]
    return [file for file in files if file.is_file()]


def texts() -> Iterator[tuple[str, str]]:
    """Name and text of every tracked file that is text."""
    for file in tracked():
        if file.suffix in TEXT_SUFFIXES and file != Path(__file__):
            yield file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8")


# --- the README's session -------------------------------------------------------------------------------------------


def session(page: Path) -> list[tuple[str, str]]:
    """The commands of a page's console blocks with what is printed below them."""
    steps: list[tuple[str, str]] = []
    for block in re.findall(r"```console\n(.*?)```", page.read_text(), re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            steps.append((command, output))
    return steps


def masked(text: str) -> str:
    """Without what differs from one day to the next: ages, times, directories for temporary files."""
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z *", "TIME ", text)
    text = re.sub(r"TIME \(in [\dms.]+\)", "TIME ", text)
    return re.sub(r" +(?:\d+[smhdy])+$", " AGE", text, flags=re.MULTILINE)


def test_session_of_the_readme_is_real(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    steps = session(ROOT / "README.md")

    with contextlib.ExitStack() as at_the_end:
        for command, expected in steps:
            if command.startswith("export "):
                name, _, value = command.removeprefix("export ").partition("=")
                environment[name] = value
            elif command.endswith(" &"):
                at_the_end.enter_context(running(command.removesuffix(" &"), tmp_path, environment))
            else:
                assert shown(command, tmp_path, environment) == masked(expected), command
                if command.startswith("tidelog apply"):
                    wait_until(lambda: is_at_rest(tmp_path, environment))

    assert len(steps) >= 10


@contextlib.contextmanager
def running(command: str, folder: Path, environment: dict[str, str]) -> Iterator[None]:
    """A daemon at work until the end of the session, on a port that nobody else has."""
    daemon = subprocess.Popen(
        ["bash", "-c", f"exec {command} --listen 127.0.0.1:0"], cwd=folder, env=environment
    )
    try:
        wait_until(lambda: is_scheduling(daemon, folder / "daemon.txt"))
        yield
    finally:
        daemon.terminate()
        assert daemon.wait(PATIENCE) == 0


def is_scheduling(daemon: subprocess.Popen[bytes], messages: Path) -> bool:
    assert daemon.poll() is None
    return messages.is_file() and "scheduling" in messages.read_text()


def is_at_rest(folder: Path, environment: dict[str, str]) -> bool:
    """Whether the scheduler has nothing to try: every pod is placed, or waits for an event."""
    waiting = json.loads(shown("tidelog queue -o json", folder, environment))["pods"]
    return all(pod["waits"]["place"] == "unschedulable" for pod in waiting)


def shown(command: str, folder: Path, environment: dict[str, str]) -> str:
    """What a terminal shows after the command."""
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return masked(done.stdout)


def test_readme_starts_with_the_two_commands() -> None:
    screen = (ROOT / "README.md").read_text().splitlines()[:24]

    assert "    make demo" in screen
    assert "    make test" in screen


# --- the command line -----------------------------------------------------------------------------------------------


def test_page_of_the_command_line_is_current() -> None:
    done = subprocess.run(
        [sys.executable, "tools/make_cli_docs.py", "--check"], cwd=ROOT, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("verb", cli.VERBS, ids=lambda verb: verb.name)
def test_every_verb_is_documented_with_an_example(verb: cli.Verb) -> None:
    page = (ROOT / "docs" / "cli.md").read_text()
    section = page.split(f"\n## tidelog {verb.name}\n")[1].split("\n## ")[0]

    assert re.search(rf"examples:\n(?:.*\n)*?.*tidelog {re.escape(verb.name)}", section)


def test_every_verb_has_its_module_and_every_module_its_verb() -> None:
    helpers = {"options", "cluster_options", "reporting"}
    folder = ROOT / "cli" / "commands"
    modules = (
        {path.stem for path in tracked() if path.parent == folder and path.suffix == ".py"}
        - {"__init__"}
        - helpers
    )

    assert modules == {verb.module for verb in cli.VERBS}


# --- links, decisions, leftovers --------------------------------------------------------------------------------------


def linked() -> set[Path]:
    """Everything that some page links to."""
    found = set()
    for name, text in texts():
        if name.endswith(".md"):
            for target in LINK.findall(text):
                found.add(Path(os.path.normpath((ROOT / name).parent / target)))
    return found


def test_every_link_leads_somewhere() -> None:
    broken = [
        f"{name}: {target}"
        for name, text in texts()
        if name.endswith(".md")
        for target in LINK.findall(text)
        if "://" not in target and not ((ROOT / name).parent / target).exists()
    ]

    assert broken == []


def test_every_page_is_linked_from_somewhere() -> None:
    pages = {file for file in tracked() if file.suffix == ".md" and (ROOT / "docs") in file.parents}
    found = linked()
    reached = {page for page in pages if page in found or any(parent in found for parent in page.parents)}

    assert sorted(page.name for page in pages - reached) == []


def test_numbers_of_decisions_are_unique() -> None:
    numbers = [path.name[:4] for path in sorted((ROOT / "docs" / "decisions").glob("*.md"))]

    assert numbers
    assert all(re.fullmatch(r"\d{4}", number) for number in numbers)
    assert sorted(set(numbers)) == numbers


def test_decisions_carry_their_number() -> None:
    for path in sorted((ROOT / "docs" / "decisions").glob("*.md")):
        assert path.read_text().startswith(f"# {path.name[:4]}"), path.name


def test_no_file_names_a_place_on_somebodys_machine() -> None:
    found = [f"{name}: {match.group()}" for name, text in texts() for match in MACHINE_PATHS.finditer(text)]

    assert found == []


def test_nothing_is_left_to_be_repaired() -> None:
    word = "FIX" + "ME"

    assert [name for name, text in texts() if word in text] == []
