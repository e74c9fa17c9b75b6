"""The interactive door: admission for the chat, as a proxy and for applications that call the model themselves."""
