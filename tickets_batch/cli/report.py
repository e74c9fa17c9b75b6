"""`report`: a batch's night in figures and pictures, and what it cost the chat."""

import json
import logging
from pathlib import Path

import click

from jobs.store import batches
from tickets_batch.cli.database import existing
from tickets_batch.cli.frame import BATCH_WORDS, Call, batch_argument, verb
from tickets_batch.errors import UserError


@verb(epilog=BATCH_WORDS)
@batch_argument
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Where the page goes; - is stdout. Default: reports/BATCH.html under home.",
)
@click.option("--json", "wants_json", is_flag=True, help="The same figures as one JSON object on stdout, and no page.")
@click.pass_obj
def report_command(call: Call, batch: str, output: Path | None, wants_json: bool) -> None:
    """Draw the night of BATCH: one HTML file that needs no network, and says what the batch cost the chat."""
    if wants_json and output is not None:
        raise click.UsageError("--json writes no page: leave out either it or -o.")
    from tickets_batch.report.figures import Figures
    from tickets_batch.report.words import receipt_in_words

    settings = call.settings()
    with existing(settings) as db:
        figures = Figures.of(db, batches.resolve(db, batch), settings)
    if wants_json:
        click.echo(json.dumps({"receipt": receipt_in_words(figures), **figures.as_json()}, indent=2))
        return
    # Before it is imported: where it keeps its list of fonts is nobody's concern.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    from tickets_batch.report.page import page

    text = page(figures)
    if output is not None and str(output) == "-":
        click.echo(text, nl=False)
        return
    path = output or settings.home / "reports" / f"{figures.batch.id}.html"
    _write(path, text, makes_folder=output is None)
    for sentence in receipt_in_words(figures):
        click.echo(sentence, err=True)
    click.echo(path)


def _write(path: Path, text: str, *, makes_folder: bool) -> None:
    try:
        if makes_folder:
            path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}: name another file with -o") from error
