"""Where manifests are read from, and what is refused before it is read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tidelog.api.errors import TidelogError, UsageError
from tidelog.api.manifests.documents import INPUT_BYTES_MAX
from tidelog.api.manifests.manifests import dump_yaml
from tidelog.cli.manifest_files import read_manifests
from tidelog.testing.builders import pod


def read(*names: Path | str, recursive: bool = False) -> list[tuple[str, str]]:
    found = read_manifests([str(name) for name in names], namespace="default", recursive=recursive)
    return [(os.path.basename(source), obj.metadata.name) for source, obj in found]


def written(path: Path, *names: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(dump_yaml([pod(name).build() for name in names]))
    return path


def test_objects_know_their_file(tmp_path: Path) -> None:
    one, two = written(tmp_path / "1.yaml", "a", "b"), written(tmp_path / "2.yaml", "c")

    assert read(two, one) == [("2.yaml", "c"), ("1.yaml", "a"), ("1.yaml", "b")]


def test_linked_directories_lead_in_no_circles(tmp_path: Path) -> None:
    written(tmp_path / "below" / "1.yaml", "a")
    (tmp_path / "below" / "above").symlink_to(tmp_path)

    assert read(tmp_path, recursive=True) == [("1.yaml", "a")]


def test_linked_files_are_read(tmp_path: Path) -> None:
    written(tmp_path / "elsewhere" / "1.yaml", "a")
    (tmp_path / "link.yaml").symlink_to(tmp_path / "elsewhere" / "1.yaml")

    assert read(tmp_path) == [("link.yaml", "a")]


def test_file_that_is_too_large_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "huge.yaml"
    path.touch()
    os.truncate(path, INPUT_BYTES_MAX + 1)

    with pytest.raises(TidelogError, match="has more than 64 MiB; split it"):
        read(path)


@pytest.mark.parametrize("name", ["none.yaml", "\0", ""])
def test_name_that_cannot_be_read_is_named(name: str) -> None:
    with pytest.raises(TidelogError, match="cannot read"):
        read(name)


def test_directory_whose_manifests_are_deeper_says_how_to_reach_them(tmp_path: Path) -> None:
    written(tmp_path / "below" / "1.yaml", "a")

    with pytest.raises(UsageError, match="-R also looks into its directories"):
        read(tmp_path)
