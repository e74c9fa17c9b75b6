"""`doctor`: everything that a night needs, tried out one after the other, each try with a time-out."""

from tickets_batch.cli.doctor.command import doctor_command

__all__ = ["doctor_command"]
