"""Which of many configurations to choose: options with what is expected of them, ranked by a goal."""
