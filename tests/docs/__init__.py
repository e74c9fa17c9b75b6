"""The parts of the pages that are made from the code: `make docs` writes them, tests compare."""
