"""Selectors over devices of the API; the language itself is tested in tests/api/cel."""

from __future__ import annotations

import pytest

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
        (f'{OWN}.version == "1.2.3"', False),
        (f'{OWN}.version == semver("1.2.3")', True),
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


def test_what_is_no_selector_is_refused_with_its_position() -> None:
    with pytest.raises(DeviceSelectorError, match="position 7: undefined field 'name'"):
        device_matcher("device.name == 'x'")


def test_attribute_without_a_domain_belongs_to_the_driver() -> None:
    assert attribute(DRIVER, DEVICE, DRIVER, "model") == "a100"
    assert attribute(DRIVER, DEVICE, "x.y", "model") is None
    assert attribute("x.y", DEVICE, DRIVER, "model") is None
    assert attribute(DRIVER, Device(attributes={"empty": DeviceAttribute()}), DRIVER, "empty") is None
