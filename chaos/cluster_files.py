"""Configuration files for a SLURM on one host: two nodes, GPUs that are plain files, accounting and free ports."""

from __future__ import annotations

import os
import socket
from pathlib import Path

NODES = ("n1", "n2")
CPUS, GPUS, MEMORY_MB = 8, 2, 8000

SLURM_CONF = """\
ClusterName=llmexp
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={root}/munge/socket
CredType=cred/munge
SlurmctldPort={controller}
SlurmctldPidFile={root}/run/slurmctld.pid
SlurmdPidFile={root}/run/slurmd.%n.pid
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool/%n
SlurmctldLogFile={root}/log/slurmctld
SlurmdLogFile={root}/log/slurmd.%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
SlurmdParameters=config_overrides
SlurmctldTimeout=30
SlurmdTimeout=10
KillWait=10
MinJobAge=300
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=0,requeue_setup_env_fail
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
OverTimeLimit=0
MaxArraySize=8
GresTypes=gpu
CommunicationParameters=NoAddrCache
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={accounting}
AccountingStoragePass={root}/munge/socket
NodeName={nodes} NodeHostname={host} NodeAddr=127.0.0.1 Port={daemons} \
CPUs={cpus} RealMemory={memory_mb} Gres=gpu:{gpus} State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
PartitionName=brief Nodes=ALL MaxTime=1 State=UP PriorityTier=1 PreemptMode=REQUEUE
"""
SLURMDBD_CONF = """\
AuthType=auth/munge
AuthInfo=socket={root}/munge/socket
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={accounting}
SlurmUser=root
LogFile={root}/log/slurmdbd
PidFile={root}/run/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database}
StorageUser=slurm
StoragePass=slurm
StorageLoc=accounting
"""
GRANTS = "create user slurm@'127.0.0.1' identified by 'slurm';\ngrant all on accounting.* to slurm@'127.0.0.1';\n"
CGROUP_CONF = "CgroupAutomount=no\nConstrainCores=no\nConstrainRAMSpace=no\nConstrainDevices=no\n"


def configure(root: Path) -> int:
    """Write everything below root/etc and make the GPUs' files; return the port for the accounting's database."""
    controller, accounting, database, *daemons = free_ports(3 + len(NODES))
    facts = {
        "root": root,
        "host": socket.gethostname().partition(".")[0],
        "cpus": CPUS,
        "gpus": GPUS,
        "memory_mb": MEMORY_MB,
    }
    facts |= {"controller": controller, "accounting": accounting, "database": database}
    facts |= {"nodes": f"n[1-{len(NODES)}]", "daemons": f"[{','.join(map(str, daemons))}]"}
    etc = root / "etc"
    (etc / "slurm.conf").write_text(SLURM_CONF.format(**facts))
    (etc / "slurmdbd.conf").write_text(SLURMDBD_CONF.format(**facts))
    (etc / "slurmdbd.conf").chmod(0o600)
    (etc / "cgroup.conf").write_text(CGROUP_CONF)
    for index in range(GPUS):
        os.mknod(root / "gpus" / str(index), 0o666 | 0o020000, os.makedev(1, 3))
    (etc / "gres.conf").write_text(f"NodeName=n[1-{len(NODES)}] Name=gpu File={root}/gpus/[0-{GPUS - 1}]\n")
    return database


def free_ports(count: int) -> list[int]:
    """Return ports of 127.0.0.1 that are free at the moment."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
