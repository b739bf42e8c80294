"""`python -m coldhash`: the command line."""

from coldhash.cli import main

main()
