"""The report as one HTML file that opens from a disk without a network: words, charts, tables and commands."""
