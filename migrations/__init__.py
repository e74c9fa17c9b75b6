"""Alembic migrations; they run from an installed wheel."""
