"""Settings of the site that `make docs` builds with Sphinx. Markdown is read by MyST, docstrings by autodoc."""

import json
from collections.abc import Iterator
from importlib.metadata import version as version_of
from pathlib import Path

import click
from sphinx.application import Sphinx

from evalflows.cli.commands import COMMANDS
from evalflows.cli.late_commands import LateCommand
from evalflows.cli.main import cli
from evalflows.cli.schema import DOCUMENTS, SPECS, schema_of

project = "Evalflows"
version = release = version_of("evalflows")
project_copyright = "the authors of Evalflows, Apache-2.0"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["deploy"]
highlight_language = "text"  # blocks that are only indented: commands and what they print
smartquotes_action = "De"  # dashes and ellipses; quotes in docstrings are code
default_role = "code"  # docstrings mark code as Markdown does
myst_heading_anchors = 4

autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "none"  # docstrings say what is wanted
python_maximum_signature_line_length = 70

html_theme = "pydata_sphinx_theme"
html_title = f"Evalflows {version}"
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
templates_path = ["_templates"]
html_context = {"default_mode": "auto"}
html_sidebars = {"**": ["groups.html"]}
html_theme_options = {
    "navbar_center": [],
    "navbar_end": ["theme-switcher"],
    "footer_end": [],
    "show_prev_next": False,
    "secondary_sidebar_items": ["page-toc"],
    "show_toc_level": 2,
}


def add_help(app: Sphinx, page: str, source: list[str]) -> None:
    """Append the help of all commands to the page about them."""
    if page == "reference/options":
        source[0] += "\n".join(command_help())


def command_help() -> Iterator[str]:
    """Yield the lines about each command: its help, as it prints it, and that of its subcommands."""
    top = click.Context(cli, info_name="evalflows", **cli.context_settings)
    for group, names in COMMANDS.items():
        yield f"\n## {group}\n"
        for name in names:
            late = cli.commands[name]
            assert isinstance(late, LateCommand)
            yield from help_of(late.load(), name, top)


def help_of(command: click.Command, name: str, parent: click.Context) -> Iterator[str]:
    context = click.Context(command, info_name=name, parent=parent, terminal_width=100, max_content_width=100)
    yield from (f"### {context.command_path}\n", "```text", command.get_help(context), "```\n")
    if isinstance(command, click.Group):
        for sub in command.list_commands(context):
            yield from help_of(command.commands[sub], sub, context)


def write_schemas(app: Sphinx, error: Exception | None) -> None:
    """Write the JSON Schemas of specs and documents into the site: `schemas/labels-judges.json`."""
    if error is not None:
        return
    folder = Path(app.outdir, "schemas")
    folder.mkdir(exist_ok=True)
    for name in (*SPECS, *DOCUMENTS):
        text = json.dumps(schema_of(name), indent=2, ensure_ascii=False)
        (folder / f"{name.replace(' ', '-')}.json").write_text(f"{text}\n", encoding="utf-8")


def setup(app: Sphinx) -> None:
    app.connect("source-read", add_help)
    app.connect("build-finished", write_schemas)
