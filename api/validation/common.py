"""The rules that all kinds share: metadata, labels, label selectors, conditions, times."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from tidelog.api.errors import FieldError
from tidelog.api.objects import Condition, LabelSelector, LabelSelectorRequirement, ObjectMeta
from tidelog.api.times import parse_time
from tidelog.api.validation import names
from tidelog.api.validation.field_errors import NOT_NEGATIVE, ErrorList

ANNOTATION_BYTES_MAX = 256 << 10
STATUSES = ("True", "False", "Unknown")
RAW_DEPTH_MAX = 32
REQUIREMENTS_MAX = 64
"""Limit on the requirements of a label selector, which is matched against every pod. Arbitrary: people write up to five; Kubernetes has no limit."""

IN_NEEDS_VALUES = "must be specified when `operator` is 'In' or 'NotIn'"
EXISTS_FORBIDS_VALUES = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
NOT_AN_OPERATOR = "not a valid selector operator"


def metadata(errors: ErrorList, meta: ObjectMeta, namespaced: bool, name_rule: names.NameCheck) -> None:
    """Name, namespace, labels, annotations, owners, finalizers, times."""
    if meta.name:
        errors.invalid_each("metadata.name", meta.name, name_rule(meta.name))
    elif meta.generate_name:
        # A trailing dash is completed by what is generated.
        probe = meta.generate_name[:-1] + "a" if meta.generate_name[-1] == "-" else meta.generate_name
        errors.invalid_each("metadata.generateName", meta.generate_name, name_rule(probe))
    else:
        errors.required("metadata.name", "name or generateName is required")
    _namespace(errors, meta, namespaced)
    if meta.generation < 0:
        errors.invalid("metadata.generation", meta.generation, NOT_NEGATIVE)
    if meta.labels:
        labels(errors, meta.labels, "metadata.labels")
    if meta.annotations:
        _annotations(errors, meta.annotations)
    if meta.owner_references:
        _owners(errors, meta)
    for finalizer in meta.finalizers:
        errors.invalid_each("metadata.finalizers", finalizer, names.label_key(finalizer))
    time(errors, meta.creation_timestamp, "metadata.creationTimestamp")
    time(errors, meta.deletion_timestamp, "metadata.deletionTimestamp")


def _namespace(errors: ErrorList, meta: ObjectMeta, namespaced: bool) -> None:
    if namespaced:
        if meta.namespace:
            errors.invalid_each("metadata.namespace", meta.namespace, names.dns_label(meta.namespace))
        else:
            errors.required("metadata.namespace")
    elif meta.namespace:
        errors.forbidden("metadata.namespace", "not allowed on this type")


def _annotations(errors: ErrorList, annotations: Mapping[str, str]) -> None:
    for key in annotations:
        errors.invalid_each("metadata.annotations", key, names.label_key(key.lower()))
    if sum(len(key) + len(value) for key, value in annotations.items()) > ANNOTATION_BYTES_MAX:
        errors.too_long("metadata.annotations", ANNOTATION_BYTES_MAX)


def _owners(errors: ErrorList, meta: ObjectMeta) -> None:
    """As Kubernetes, except that the uid may be empty: who writes manifests by hand does not know it."""
    controllers = []
    for index, owner in enumerate(meta.owner_references):
        path = f"metadata.ownerReferences[{index}]"
        if not owner.api_version:
            errors.invalid(f"{path}.apiVersion", owner.api_version, "version must not be empty")
        if not owner.kind:
            errors.invalid(f"{path}.kind", owner.kind, "must not be empty")
        if not owner.name:
            errors.invalid(f"{path}.name", owner.name, "must not be empty")
        if owner.controller:
            controllers.append(f"{owner.kind}/{owner.name}")
    if len(controllers) > 1:
        rule = 'Only one reference can have Controller set to true. Found "true" in references for '
        errors.invalid("metadata.ownerReferences", controllers, rule + " and ".join(controllers))


def labels(errors: ErrorList, found: Mapping[str, str], path: str) -> None:
    """Keys and values, as labels and as maps that select by them."""
    for key, value in found.items():
        if rules := names.label_key(key):
            errors.invalid_each(path, key, rules)
        if rules := names.label_value(value):
            errors.invalid_each(path, value, rules)


def label_selector(errors: ErrorList, selector: LabelSelector | None, path: str) -> None:
    """matchLabels and matchExpressions; an absent selector has no errors."""
    if selector is None:
        return
    count = len(selector.match_labels) + len(selector.match_expressions)
    if count > REQUIREMENTS_MAX:
        errors.too_many(path, count, REQUIREMENTS_MAX)
    if selector.match_labels:
        labels(errors, selector.match_labels, f"{path}.matchLabels")
    for index, requirement in enumerate(selector.match_expressions):
        _requirement(errors, requirement, f"{path}.matchExpressions[{index}]")


def _requirement(errors: ErrorList, requirement: LabelSelectorRequirement, path: str) -> None:
    operator = requirement.operator
    if operator in ("In", "NotIn"):
        if not requirement.values:
            errors.required(f"{path}.values", IN_NEEDS_VALUES)
    elif operator in ("Exists", "DoesNotExist"):
        if requirement.values:
            errors.forbidden(f"{path}.values", EXISTS_FORBIDS_VALUES)
    else:
        errors.invalid(f"{path}.operator", operator, NOT_AN_OPERATOR)
    errors.invalid_each(f"{path}.key", requirement.key, names.label_key(requirement.key))
    label_values(errors, requirement.values, path)


def label_values(errors: ErrorList, values: Iterable[str], path: str) -> None:
    """The values of a requirement whose path is given."""
    for index, value in enumerate(values):
        rules = names.label_value(value)
        if rules:
            errors.invalid_each(f"{path}.values[{index}]", value, rules)


def conditions(errors: ErrorList, found: Iterable[Condition], path: str) -> None:
    """Types are qualified names and unique, statuses True, False or Unknown."""
    seen: set[str] = set()
    for index, condition in enumerate(found):
        where = f"{path}[{index}]"
        errors.invalid_each(f"{where}.type", condition.type, names.label_key(condition.type))
        errors.unique(f"{where}.type", condition.type, seen)
        if condition.status not in STATUSES:
            errors.not_supported(f"{where}.status", condition.status, STATUSES)
        if condition.observed_generation < 0:
            errors.invalid(f"{where}.observedGeneration", condition.observed_generation, NOT_NEGATIVE)
        time(errors, condition.last_transition_time, f"{where}.lastTransitionTime")


def validate_condition(type: str, status: str) -> list[FieldError]:
    """A condition that somebody sets by itself."""
    errors = ErrorList()
    errors.invalid_each("type", type, names.label_key(type))
    if status not in STATUSES:
        errors.not_supported("status", status, STATUSES)
    return errors


def time(errors: ErrorList, text: str, path: str) -> None:
    """RFC 3339, if there at all."""
    if text:
        try:
            parse_time(text)
        except ValueError as error:
            errors.invalid(path, text, str(error))


def raw(errors: ErrorList, value: object, path: str) -> None:
    """Refuse raw values that our encoders cannot write."""
    waiting: list[tuple[object, int]] = [(value, 0)]
    while waiting:
        part, depth = waiting.pop()
        if depth > RAW_DEPTH_MAX:
            errors.invalid(path, None, f"must not be nested deeper than {RAW_DEPTH_MAX} levels")
            return
        if isinstance(part, dict):
            waiting.extend((item, depth + 1) for item in part.values())
        elif isinstance(part, list):
            waiting.extend((item, depth + 1) for item in part)
        elif isinstance(part, float) and not math.isfinite(part):
            errors.invalid(path, str(part), "must be a finite number")
        elif isinstance(part, int) and not -(1 << 63) <= part < 1 << 63:
            errors.invalid(path, part, "must fit in 64 bits")
