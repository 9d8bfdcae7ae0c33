"""`tidelog completion`."""

from __future__ import annotations

import argparse

DESCRIPTION = """\
Print the completion script of a shell: verbs, options, their values, kinds. It is static, so that completing a word starts nothing."""
EXAMPLES = """\
  source <(tidelog completion bash)
  tidelog completion zsh > ~/.zfunc/_tidelog
  tidelog completion fish > ~/.config/fish/completions/tidelog.fish
"""
SHELLS = ("bash", "zsh", "fish")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("shell", choices=SHELLS, metavar="|".join(SHELLS), help="the shell")


def run(args: argparse.Namespace) -> int:
    """Print the script that was shipped."""
    from tidelog.cli.shipped import folder

    print((folder("cli") / "completions" / f"tidelog.{args.shell}").read_text(encoding="utf-8"), end="")
    return 0
