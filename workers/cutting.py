"""Engines that cut long prompts without a word, as Ollama does at its `num_ctx`. Pure."""

LARGER = 1.25  # so much more text is not counted as the same number of tokens
BELIEVED = 3  # such prompts, and none that was counted as more


class Cutting:
    """What one engine counted of prompts. It cuts where several of quite different sizes all count as the most."""

    def __init__(self) -> None:
        self.most_tokens = 0
        self._smallest = 0
        self._larger = 0

    def heard(self, size: int, tokens: int) -> bool:
        """A prompt of `size` bytes was counted as `tokens`; True where that first shows that the engine cuts."""
        if tokens > self.most_tokens:
            self.most_tokens, self._smallest, self._larger = tokens, size, 0
        elif tokens == self.most_tokens:
            self._smallest = min(self._smallest, size)
            if size > LARGER * self._smallest:
                self._larger += 1
                return self._larger == BELIEVED
        return False
