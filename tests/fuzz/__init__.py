"""The parsers of what others write, each fed with anything by a fuzzer that follows their branches: see `__main__`."""
