"""How the site is made of these pages: `make docs`."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

project = "Tidemill"
author = "the Tidemill authors"
project_copyright = "the Tidemill authors; Apache License 2.0"
release = re.search(r'(?m)^version = "(.+)"', (ROOT / "Cargo.toml").read_text())[1]
version = release

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_static"]
root_doc = "index"

# Headings are link targets by the same names as on a code host.
myst_heading_anchors = 4

# The Python pages come from the docstrings alone: the native module need not be built.
autodoc_mock_imports = ["tidemill._tidemill"]
# The docstrings tell the types.
autodoc_typehints = "none"
autodoc_member_order = "bysource"
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_preprocess_types = True
# A path is no attribute of that name.
napoleon_type_aliases = {"path": ":code:`path`"}

html_theme = "furo"
html_title = "Tidemill"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["copy.js"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}
# Code that is not of its language all through (an ellipsis in JSON) is shown as it is.
suppress_warnings = ["misc.highlighting_failure"]
