"""The interactive door: admission for the chat."""
