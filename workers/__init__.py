"""DOING the jobs: one Celery task, an executor on an event loop, the model client."""
