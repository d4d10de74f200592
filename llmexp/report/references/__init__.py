"""Published references: what somebody printed of runs, and how a report shows it beside what is measured."""
