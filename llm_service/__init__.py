"""Language models behind one door.

embed_one                a text to a frozen sentence embedding, on CPU       (embedding)
"""

from llm_service.embedding import MINILM_WIDTH, EmbedderMissing, embed_one

__all__ = ["MINILM_WIDTH", "EmbedderMissing", "embed_one"]
