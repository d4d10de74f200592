"""The command line: words to jobs, jobs to plans, plans to runs and their report; and the commands that look at what has run."""
