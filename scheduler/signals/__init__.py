"""What is known of the chat: sources, and the one reading that they make together."""
