"""What on this machine would stop or disturb a measurement: checks that start nothing and import nothing heavy."""
