"""Choose the objects of `tidelog get`, and print them in one of its formats."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from tidelog.api.errors import UsageError
from tidelog.api.kinds.columns import Column, View, label_words
from tidelog.api.kinds.kind import Kind
from tidelog.api.kinds.registry import kind_of, object_key
from tidelog.api.manifests.manifests import as_list, dump_yaml, to_builtins
from tidelog.api.objects import Object, Pod
from tidelog.api.selector_text import parse_label_selector
from tidelog.api.selectors import SelectorError, label_matcher
from tidelog.api.text import age, as_json, safe, table
from tidelog.api.times import parse_time
from tidelog.cli.object_names import key_of
from tidelog.cli.terminal import notice
from tidelog.daemon.intake.messages import short_name
from tidelog.eventlog.objects import ObjectTable
from tidelog.kube.opaque import read as read_left_over
from tidelog.kube.opaque import with_left_over
from tidelog.kube.selectors import (
    FIELD_DEFAULTS,
    FIELDS,
    FIELDS_OF_ALL,
    FieldSelectorError,
    FieldTerm,
    field_matcher,
    parse_field_selector,
    typed_field,
    value_in,
)


def selected(selector: str) -> Callable[[Object], bool]:
    """Whether an object has the labels that `-l` asks for; raises UsageError."""
    try:
        match = label_matcher(parse_label_selector(selector))
    except SelectorError as error:
        raise UsageError(f"--selector: {error}") from None
    return lambda obj: match(obj.metadata.labels)


def fields_of(selector: str, kind: str) -> tuple[FieldTerm, ...]:
    """The terms of `--field-selector` for a kind; raises UsageError for a field by which an API server does not select."""
    try:
        return parse_field_selector(selector, kind)
    except FieldSelectorError as error:
        known = ", ".join((*FIELDS_OF_ALL, *FIELDS.get(kind, ())))
        raise UsageError(f"--field-selector: {error}; of a {kind} it may name {known}") from None


def columns_of(kind: Kind, wide: bool, filled: Collection[str] = ()) -> tuple[Column, ...]:
    """The columns of a kind behind name and namespace, in order. `filled`: those that have something in them."""
    shown = [
        column
        for column in kind.columns
        if wide or not column.wide or (column.if_any and column.heading in filled)
    ]
    if wide:
        shown.append(Column("LABELS", lambda o, _: label_words(o.metadata.labels)))
    return (*shown, Column("AGE", _age))


def _age(obj: Object, view: View) -> str:
    try:
        return age(view.now - parse_time(obj.metadata.creation_timestamp))
    except ValueError:
        return "<unknown>"


def missing_text(missing: Sequence[str], gone: Sequence[str], namespace: str) -> str:
    """Say which objects are not there, and which of them were deleted."""
    text = f"not found in namespace {namespace}: {', '.join(map(short_name, missing))}"
    if gone:
        text += f"; deleted: {', '.join(map(short_name, gone))}"
    pod = next((key for key in gone if key.startswith("Pod/")), "")
    return text + (f"; `tidelog why {pod.partition('/')[2]}` still tells its story" if pod else "")


class Listing:
    """Objects of one or more kinds, in the order in which they are printed."""

    def __init__(self, objects: ObjectTable, now: int, namespace: str | None) -> None:
        """`namespace` None stands for all of them."""
        self._table = objects
        self._now = now
        self._namespace = namespace
        self._kinds: list[Kind] = []
        self._chosen: list[Object] = []
        self._single = False
        """One object was asked for by name, so it is not wrapped into a list."""
        self._where = ""
        """Said when nothing was found."""

    def add_named(self, names: Sequence[tuple[Kind, str]]) -> list[str]:
        """These objects; returns the keys of those that do not exist."""
        assert self._namespace is not None
        missing = []
        for kind, name in names:
            namespace = self._namespace if kind.namespaced else ""
            found = self._table.cluster.get(kind.name, namespace, name)
            if found is None:
                missing.append(key_of(kind, namespace, name))
            else:
                self._chosen.append(found)
        self._kinds = list(dict.fromkeys(kind for kind, _ in names))
        self._single = len(names) == 1
        return missing

    def add_kinds(
        self,
        kinds: Sequence[Kind],
        matches: Callable[[Object], bool],
        fields: Mapping[str, tuple[FieldTerm, ...]],
        *,
        initial: bool,
    ) -> None:
        """The objects of these kinds that match and have the fields, with `initial` also those that exist in every cluster."""
        if self._namespace is not None and any(kind.namespaced for kind in kinds):
            self._where = f" in namespace {self._namespace}"
        for kind in kinds:
            has_fields = field_matcher(fields[kind.name], self._field)
            found = [
                obj
                for obj in self._all(kind, initial)
                if matches(obj) and (has_fields is None or has_fields(obj))
            ]
            if found or len(kinds) == 1:
                self._kinds.append(kind)
            self._chosen += found

    def _field(self, obj: Object, field: str) -> str:
        """A field as a field selector compares it."""
        found = typed_field(obj, field)
        if found is not None:
            return found
        entry, data = self._table.entry(object_key(obj)), to_builtins(obj)
        if entry is not None and entry.opaque:
            with_left_over(data, read_left_over(entry.opaque), type(obj))
        return value_in(data, field) or FIELD_DEFAULTS.get(field, "")

    def _all(self, kind: Kind, initial: bool) -> Iterable[Object]:
        if kind.namespaced:
            found: Iterable[Object] = (entry.object for entry in self._table.of_kind(kind.name))
            return (o for o in found if self._namespace in (None, o.metadata.namespace))
        if initial:
            return sorted(self._table.cluster.of_kind(kind.name), key=lambda o: o.metadata.name)
        return (entry.object for entry in self._table.of_kind(kind.name))

    def tell_placed(self, terms: Sequence[FieldTerm]) -> None:
        """Say which of the pods that are Pending to Kubernetes wait for a node, since most who ask for that phase mean these."""
        placed = sum(isinstance(obj, Pod) and bool(obj.spec.node_name) for obj in self._chosen)
        if placed and FieldTerm("status.phase", "Pending", wanted=True) in terms:
            notice(
                f"{placed} of these {'has' if placed == 1 else 'have'} a node, and nothing has said that {'it runs' if placed == 1 else 'they run'}; "
                "`tidelog queue` lists those that wait for a node"
            )

    def print(self, output: str, *, headings: bool = True) -> None:
        """To stdout; that there is nothing is said on stderr."""
        if output == "json":
            print(as_json(to_builtins(self._chosen[0]) if self._single else as_list(self._chosen)))
        elif output == "yaml":
            print(_yaml(self._chosen, wrap=not self._single), end="")
        elif not self._chosen:
            print(f"nothing found{safe(self._where)}", file=sys.stderr)
        elif output == "name":
            print("\n".join(f"{kind_of(o).singular}/{o.metadata.name}" for o in self._chosen))
        else:
            print("\n\n".join(self._tables(output == "wide", headings)))

    def _tables(self, wide: bool, headings: bool) -> Iterable[str]:
        pods = (entry.object for entry in self._table.of_kind("Pod"))
        view = View(self._now, (pod for pod in pods if isinstance(pod, Pod)))
        for kind in self._kinds:
            objects = [obj for obj in self._chosen if kind_of(obj) is kind]
            optional = [column for column in kind.columns if column.if_any]
            filled = [c.heading for c in optional if any(c.cell(obj, view) for obj in objects)]
            columns = (*self._identity(kind), *columns_of(kind, wide, filled))
            rows = [[column.cell(obj, view) for column in columns] for obj in objects]
            yield table([column.heading for column in columns], rows, headings=headings)

    def _identity(self, kind: Kind) -> Iterable[Column]:
        """Namespace and name; the kind in front of the name where several kinds are listed, as kubectl does it."""
        if kind.namespaced and self._namespace is None:
            yield Column("NAMESPACE", lambda obj, _: obj.metadata.namespace)
        prefix = f"{kind.singular}/" if len(self._kinds) > 1 else ""
        yield Column("NAME", lambda obj, _: prefix + obj.metadata.name)


def _yaml(objects: Sequence[Object], *, wrap: bool) -> str:
    text = dump_yaml(objects, wrap=wrap)
    if all(line.isprintable() for line in text.split("\n")):
        return text
    return dump_yaml(objects, wrap=wrap, ascii=True)
