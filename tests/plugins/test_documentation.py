"""The pages about plugins and configuration say what is so, and their examples work."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

from tidelog.configuration.configuration import WITHOUT_EFFECT, SchedulerConfiguration, read_configuration
from tidelog.configuration.file_v1 import KubeSchedulerConfiguration, ProfileSection, TidelogSection
from tidelog.configuration.profiles import DEFAULT_PLUGINS
from tidelog.framework.events import Action, Resource
from tidelog.framework.interface import Code, Depends
from tidelog.plugins.registry import IN_TREE, POINTS, REMOVED, UNSUPPORTED, Registry
from tidelog.testing.plugin_kit import BrokenPromise, check_plugin

ROOT = Path(__file__).parent.parent.parent
EXAMPLE = ROOT / "examples" / "plugin"
AUTHORS, SETTINGS = ((ROOT / "docs" / f"{page}.md").read_text() for page in ("plugins", "configuration"))


def blocks(page: str, language: str) -> list[str]:
    """The code blocks of a page."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ModuleType, ModuleType]]:
    """The example plugin and its tests."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    names = ("licence_seats", "test_licence_seats")
    yield tuple(importlib.import_module(name) for name in names)  # type: ignore[misc]
    for name in names:
        sys.modules.pop(name)


# --- the author's guide -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", ["licence_seats.py", "test_licence_seats.py"])
def test_guide_shows_the_example_as_it_is(file: str) -> None:
    assert (EXAMPLE / file).read_text() in blocks(AUTHORS, "python")


def test_example_is_small() -> None:
    assert len((EXAMPLE / "licence_seats.py").read_text().splitlines()) <= 40


def test_example_passes_its_own_tests(example: tuple[ModuleType, ModuleType]) -> None:
    tests = [value for name, value in vars(example[1]).items() if name.startswith("test_")]

    assert [test() for test in tests] == [None, None]


def test_kit_finds_the_mistake_that_the_guide_suggests(example: tuple[ModuleType, ModuleType]) -> None:
    plugin, tests = example

    class Deaf(plugin.LicenceSeats):  # type: ignore[name-defined, misc]
        def events_to_register(self) -> Any:
            return [
                r._replace(event=r.event._replace(action=r.event.action & ~Action.UPDATE_POD_LABEL))
                for r in super().events_to_register()
            ]

    with pytest.raises(BrokenPromise, match="PodUpdatePodLabel"):
        check_plugin(Deaf, world=tests.Licences())


def test_guides_configuration_turns_the_example_on(example: tuple[ModuleType, ModuleType]) -> None:
    registry = Registry()
    registry.register(example[0].LicenceSeats, "licence-seats 1.0")
    (text,) = blocks(AUTHORS, "yaml")

    loaded = read_configuration(text, registry)

    assert loaded.warnings == ()
    assert loaded.configuration.profiles[0].points["filter"][-1].name == "LicenceSeats"
    assert 'LicenceSeats = "licence_seats:LicenceSeats"' in blocks(AUTHORS, "toml")[0]


def test_guides_arguments_work() -> None:
    (source,) = [block for block in blocks(AUTHORS, "python") if "validate_args" in block]
    names: dict[str, Any] = {}
    exec(  # The block leaves out the imports that the text around it has made clear.
        "from tidelog.api.errors import FieldError\nfrom tidelog.framework.interface import Plugin, PluginArgs\n"
        + source,
        names,
    )
    plugin, args = names["LicenceSeats"], names["LicenceSeatsArgs"]

    assert msgspec.json.decode(b'{"spareSeats": -1}', type=args) == args(spare_seats=-1)
    assert [error.path for error in plugin.validate_args(args(spare_seats=-1), "args", None)] == [
        "args.spareSeats"
    ]
    assert plugin.validate_args(args(), "args", None) == []


@pytest.mark.parametrize("point", POINTS)
def test_guide_names_every_extension_point_and_its_methods(point: str) -> None:
    row = next(line for line in AUTHORS.splitlines() if re.match(rf"\| ([a-zA-Z, ]*\b)?{point}\b", line))

    assert all(f"`{method}`" in row for method in POINTS[point])


@pytest.mark.parametrize("code", [code for code in Code if code is not Code.SUCCESS])
def test_guide_names_every_status_code(code: Code) -> None:
    assert re.search(rf"^\| {code.value} \|", AUTHORS, re.MULTILINE)


@pytest.mark.parametrize("depends", [*(d.name for d in Depends), "POD"])
def test_guide_names_every_dependency(depends: str) -> None:
    assert re.search(rf"^\| `{depends}`", AUTHORS, re.MULTILINE)


def test_guide_names_the_resources_of_pods() -> None:
    assert all(f"`{r.name}`" in AUTHORS for r in (Resource.ASSIGNED_POD, Resource.TARGET_POD, Resource.TIME))


# --- the configuration's page -------------------------------------------------------------------------------------------------------


def fields(*structs: type[msgspec.Struct]) -> list[str]:
    return [name for struct in structs for name in struct.__struct_encode_fields__]


@pytest.mark.parametrize(
    "field", fields(KubeSchedulerConfiguration, ProfileSection, TidelogSection, SchedulerConfiguration)
)
def test_page_explains_every_field(field: str) -> None:
    assert f"`{field}`" in SETTINGS


@pytest.mark.parametrize("point", [*POINTS, "multiPoint", "podGroupPostFilter"])
def test_page_names_every_point(point: str) -> None:
    assert f"`{point}`" in SETTINGS


@pytest.mark.parametrize("name", [*(p.name for p in IN_TREE), *UNSUPPORTED, *REMOVED, *WITHOUT_EFFECT])
def test_page_names_every_plugin_and_everything_without_effect(name: str) -> None:
    assert name in SETTINGS


def test_page_gives_the_default_plugins_in_order() -> None:
    listed = next(line for line in SETTINGS.splitlines() if line.startswith("SchedulingGates, "))
    present = [plugin for plugin in DEFAULT_PLUGINS if Registry().get(plugin.name)]

    assert listed.rstrip(".").split(", ") == [
        f"{p.name} ({p.weight})" if p.weight else p.name for p in present
    ]


@pytest.mark.parametrize("plugin", [p for p in IN_TREE if p.Args is not None], ids=lambda plugin: plugin.name)
def test_page_names_every_argument(plugin: Any) -> None:
    section = SETTINGS[SETTINGS.index(f"**{plugin.name}**") :].split("\n\n**")[0]

    assert all(f"`{name}`" in section for name in plugin.Args.__struct_encode_fields__)


@pytest.mark.parametrize("text", blocks(SETTINGS, "yaml"))
def test_examples_of_the_page_are_read_without_a_warning(text: str) -> None:
    header = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"

    assert read_configuration(text if "apiVersion" in text else header + text, Registry()).warnings == ()
