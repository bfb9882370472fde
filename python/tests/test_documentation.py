"""What the documentation says is true."""

import doctest
import importlib
import inspect
import pathlib
import pkgutil
import re
import shutil

import pytest

import tidemill

REPOSITORY = pathlib.Path(__file__).parents[2]
MODULES = [
    tidemill,
    *(
        importlib.import_module(f"tidemill.{module.name}")
        for module in pkgutil.iter_modules(tidemill.__path__)
        if module.name != "_tidemill"
    ),
]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_examples_in_docstrings_are_true(module):
    tests = [test for test in doctest.DocTestFinder().find(module) if test.examples]
    for test in tests:
        assert not any(doctest.SKIP in example.options for example in test.examples), test.name
    done = doctest.testmod(module)
    assert done.failed == 0
    assert done.attempted == sum(len(test.examples) for test in tests)


def test_every_public_name_has_an_example():
    without = [
        name
        for name in tidemill.__all__
        if not inspect.isclass(getattr(tidemill, name))
        or not issubclass(getattr(tidemill, name), Exception)
        if ">>> " not in (inspect.getdoc(getattr(tidemill, name)) or "")
    ]
    assert without == ["__version__"]


# Pages with Python in them.
PAGES = [
    page for page in sorted((REPOSITORY / "docs").glob("*.md")) if "```python\n" in page.read_text()
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_in_the_documentation_are_true(page, tmp_path, monkeypatch):
    shutil.copytree(REPOSITORY / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    text = page.read_text()
    for block in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        source = block[1]
        line = text.count("\n", 0, block.start()) + 1
        if ">>> " not in source:
            exec(compile("\n" * line + source, page, "exec"), names)
            continue
        test = doctest.DocTestParser().get_doctest(source, names, page.name, str(page), line)
        assert not any(doctest.SKIP in example.options for example in test.examples)
        runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
        runner.run(test, clear_globs=False)
        assert runner.failures == 0
        names = test.globs
