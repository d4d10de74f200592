"""What this machine is and how loaded it is: processor, memory, GPUs, energy and processes, each question asked here alone. Without torch."""
