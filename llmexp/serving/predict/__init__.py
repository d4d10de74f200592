"""How fast a server would be on any hardware."""
