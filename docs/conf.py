"""Configuration of Sphinx for `make docs`."""

import sys
from pathlib import Path

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.writers.html5 import HTML5Translator

sys.path.insert(0, str(Path(__file__).parents[1]))

from evenhand import __version__
from tools import reference

project = "evenhand"
author = "the evenhand authors"
copyright = author  # noqa: A001 - Sphinx requires this name
version = release = __version__

extensions = ["myst_nb"]  # reads Markdown and executes the notebooks of the gallery
html_math_renderer = "mathml"  # formulas need no script from another server, so pages can be read offline
nb_execution_mode = "cache"  # a notebook is executed again when its cells change
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True
myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
nitpicky = True

html_theme = "furo"
html_title = "evenhand"
html_static_path = ["_static"]
html_css_files = ["evenhand.css"]

PAGES = {
    "commands": reference.commands,
    "http": reference.http,
    "events": reference.events,
    "python": reference.python,
}


class FromCode(SphinxDirective):
    """`{from-code} commands`: insert a reference page that is generated from the code."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes(PAGES[self.arguments[0]](), allow_section_headings=True)


def write_formula(writer: HTML5Translator, node: nodes.math) -> None:
    writer.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def write_formula_on_its_own_line(writer: HTML5Translator, node: nodes.math_block) -> None:
    writer.body.append(f"<div class='math'>{tex2mathml(node.astext(), as_block=True)}</div>")
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    app.add_html_math_renderer("mathml", (write_formula, None), (write_formula_on_its_own_line, None))
    app.add_directive("from-code", FromCode)
