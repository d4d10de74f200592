"""How runs of task=compress are shown."""
