"""The command `tickets-batch`: one file per group of verbs."""


def main() -> None:
    raise SystemExit("nothing here yet")
