"""The supported part of CEL over devices."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.api.device_selectors import DeviceSelectorError, attribute, device_matcher
from tidelog.api.objects import Device, DeviceAttribute

DRIVER = "gpu.example.com"
DEVICE = Device(
    name="gpu-0",
    attributes={
        "model": DeviceAttribute(string="a100"),
        "index": DeviceAttribute(int_value=3),
        "healthy": DeviceAttribute(bool_value=True),
        "version": DeviceAttribute(version="1.2.3"),
        "other.example.com/rack": DeviceAttribute(string="r1"),
    },
)
OWN = f'device.attributes["{DRIVER}"]'
OTHER = 'device.attributes["other.example.com"]'


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (f'device.driver == "{DRIVER}"', True),
        ('device.driver == "x"', False),
        ('device.driver != "x"', True),
        (f"device.driver == '{DRIVER}'", True),
        (f'{OWN}.model == "a100"', True),
        (f'"a100" == {OWN}.model', True),
        (f'{OWN}.version == "1.2.3"', True),
        (f'{OTHER}.rack == "r1"', True),
        (f'{OTHER}.model == "a100"', False),
        (f"{OWN}.index > 2", True),
        (f"{OWN}.index >= 3 && {OWN}.index <= 3 && {OWN}.index < 4", True),
        (f"{OWN}.index < 3", False),
        (f"{OWN}.index == -3", False),
        (f'{OWN}.model > "a"', True),
        (f"{OWN}.healthy", True),
        (f"!{OWN}.healthy", False),
        (f"!!{OWN}.healthy", True),
        (f"{OWN}.healthy == true", True),
        (f"{OWN}.healthy > false", True),
        ("true", True),
        ("false || true", True),
        ("true || false && false", True),
        ("(true || false) && false", False),
        (f'{OWN}.model in ["h100", "a100"]', True),
        (f"{OWN}.index in [1, 2]", False),
        (f"{OWN}.index in []", False),
        # Values of different types are different, and have no order.
        (f'{OWN}.index == "3"', False),
        (f'{OWN}.index != "3"', True),
        (f'{OWN}.index < "4"', False),
        (f"{OWN}.healthy == 1", False),
        # An attribute that is not there is an error, which the other side can absorb.
        (f'{OWN}.absent == "x"', False),
        (f'{OWN}.absent != "x"', False),
        (f'!({OWN}.absent == "x")', False),
        (f'{OWN}.absent == "x" || true', True),
        (f'true || {OWN}.absent == "x"', True),
        (f'{OWN}.absent == "x" && true', False),
        (f'!({OWN}.absent == "x" && false)', True),
        (f"{OWN}.absent in [1]", False),
        (f"{OWN}.model", False),
        (r'"a\"b\n" == "a\"b\n"', True),
    ],
)
def test_expression_matches_as_cel_does(expression: str, expected: bool) -> None:
    assert device_matcher(expression)(DRIVER, DEVICE) == expected


@pytest.mark.parametrize(
    ("expression", "position", "why"),
    [
        ("", 1, "expected device.driver, device.attributes, a string, an integer or a boolean"),
        ("   ", 4, "expected device.driver"),
        ("device", 7, "expected ."),
        ("device.name", 8, "only device.driver and device.attributes are supported"),
        ("device.capacity['x'].y", 8, "only device.driver and device.attributes are supported"),
        ("device.attributes.x", 18, "expected ["),
        ("device.attributes[3].x", 19, "expected the domain as a string"),
        ("device.attributes['a']", 23, "expected ."),
        (
            "device.attributes['a'].b.startsWith('x')",
            25,
            "functions and fields of attributes are not supported",
        ),
        ("device.driver == ", 18, "expected device.driver, device.attributes, a string"),
        ("device.driver = 'x'", 15, "unexpected character"),
        ("device.driver + 'x'", 15, "unexpected character"),
        ("true true", 6, "expected an operator or the end"),
        ("(true", 6, "expected )"),
        ("true in [1", 11, "expected ,"),
        ("1 in [x]", 7, "expected device.driver"),
        ("x", 1, "expected device.driver"),
        (r"'\x41'", 1, r"escape \x is not supported"),
        ("9" * 21, 1, "integer is too long"),
        ("(" * 40 + "true", 34, "must not be nested deeper than 32 levels"),
        ("!" * 40 + "true", 34, "must not be nested deeper than 32 levels"),
        ("'" + "a" * 10240 + "'", 10240, "may not be more than 10240 characters"),
    ],
)
def test_the_rest_of_cel_is_refused_with_its_position(expression: str, position: int, why: str) -> None:
    with pytest.raises(DeviceSelectorError) as caught:
        device_matcher(expression)

    assert caught.value.position == position
    assert why in str(caught.value)


@given(st.text(alphabet='device.attributes["a"]()!&|=<>in \'12\\,\n', max_size=60))
def test_any_text_is_a_matcher_or_an_error_with_its_position(text: str) -> None:
    position = 0
    try:
        device_matcher(text)(DRIVER, DEVICE)
    except DeviceSelectorError as error:
        position = error.position

    assert 0 <= position <= len(text) + 1


def test_attribute_without_a_domain_belongs_to_the_driver() -> None:
    assert attribute(DRIVER, DEVICE, DRIVER, "model") == "a100"
    assert attribute(DRIVER, DEVICE, "x.y", "model") is None
    assert attribute("x.y", DEVICE, DRIVER, "model") is None
    assert attribute(DRIVER, Device(attributes={"empty": DeviceAttribute()}), DRIVER, "empty") is None
