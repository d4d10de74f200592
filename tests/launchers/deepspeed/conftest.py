from __future__ import annotations

import own_processes

processes = own_processes.processes
