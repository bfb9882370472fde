"""What the docstrings say is true."""

import doctest
import importlib
import inspect
import pkgutil

import pytest

import tidemill

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
