"""`python -m tickets_batch`: how the command starts its own children."""

from tickets_batch.cli import main

main()
