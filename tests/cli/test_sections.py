"""Sections of a brief result."""

from rich.console import Console, Group
from rich.text import Text

from evalflows.cli.sections import lines_section, print_sections


def test_sentences_are_wrapped_and_commands_to_copy_are_whole() -> None:
    command = Text(f"all of it: evalflows diff {'a' * 30} {'b' * 30}", no_wrap=True, overflow="ignore")
    out = Console(width=40, record=True)
    print_sections(out, [lines_section([Group(Text("word " * 12), command)], "note")], 24, "--all")
    lines = out.export_text().splitlines()
    assert command.plain in lines
    assert max(len(line.rstrip()) for line in lines if line.startswith("word")) <= 40
