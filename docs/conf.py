"""How the documentation is built: `make docs`."""

from importlib.metadata import version as installed_version

project = "evenhand"
author = "the evenhand authors"
copyright = author  # noqa: A001 - Sphinx asks for this name
version = release = installed_version("evenhand")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax"]
myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
nitpicky = True

autodoc_typehints = "none"  # the signatures are in the source; the words are what a reader comes for

html_theme = "furo"
html_title = "evenhand"
