"""The tokenizer of bytes: a token for each byte of UTF-8, and one for the end of a document."""

from __future__ import annotations

BYTES = "bytes"
BYTE_VOCABULARY = 257
END_OF_DOCUMENT = 256
