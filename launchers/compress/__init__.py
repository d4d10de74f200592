"""The engine of task=compress: it calls the libraries that compress, and measures what came out."""
