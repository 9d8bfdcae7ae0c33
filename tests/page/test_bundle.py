"""The page's files, one by one and as one document."""

import re
from pathlib import Path

from tidelog.cli.shipped import folder
from tidelog.page.bundle import asset_type, document, flattened, live_document

ASSETS = folder("page") / "assets"
DECLARED = re.compile(r"^(?:export )?(?:async )?(?:function|class|const|let) ([A-Za-z_$]+)", re.MULTILINE)


def modules() -> list[Path]:
    return sorted(ASSETS.glob("*.js"))


def test_top_level_names_of_all_modules_differ() -> None:
    """In one document they share one scope."""
    names = [name for path in modules() for name in DECLARED.findall(path.read_text())]

    assert sorted(names) == sorted(set(names))


def test_one_script_holds_every_module_behind_what_it_needs() -> None:
    text = flattened()

    assert not re.search(r"^(import|export) ", text, re.MULTILINE)
    for path in modules():
        for name in DECLARED.findall(path.read_text()):
            assert re.search(
                rf"^(?:async )?(?:function|class|const|let) {re.escape(name)}\b", text, re.MULTILINE
            )
    assert text.index("class Model") < text.index("class Page")


def test_script_never_makes_markup_of_text() -> None:
    for path in modules():
        for way in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
        ):
            assert way not in path.read_text(), f"{path.name} uses {way}"


def test_document_asks_for_nothing_from_elsewhere() -> None:
    text = document("x", [])

    assert "default-src 'none'" in text
    assert not re.search(r"""(?:src|href)=["'](?!#)""", text)
    assert "https://" not in text


def test_title_cannot_become_markup() -> None:
    assert "<script>alert" not in document("<script>alert(1)</script>", [])


def test_only_scripts_and_styles_of_the_page_are_served() -> None:
    assert asset_type("main.js") == "text/javascript; charset=utf-8"
    assert asset_type("index.html") is None
    assert asset_type("../bundle.py") is None
    assert asset_type("missing.js") is None
    assert 'src="main.js"' in live_document()
