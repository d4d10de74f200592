"""From a validated configuration to a frozen plan: degrees, memory, native engine configuration, command. Needs no torch and no GPU."""
