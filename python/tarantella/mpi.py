"""What mpirun and srun tell a process in its environment: enough to know that it is a rank, before MPI is started."""

from __future__ import annotations

import os

from tarantella import variables

# names of the ranks of one job, the same on all of them and others in the next job
_JOB_VARIABLES = (
    "OMPI_MCA_orte_precondition_transports",
    "PMIX_NAMESPACE",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
)
_LOCAL_SIZE_VARIABLES = (variables.LOCAL_SIZE, "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")


def started_by_mpi() -> bool:
    """Whether this process is one of several ranks of mpirun or srun; as src/launch/mpi_environment.cpp has it."""
    if variables.SIZE in os.environ:
        return False
    if any(_number(name) > 1 for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")):
        return True
    can_meet = "PMIX_RANK" in os.environ or "PMI_RANK" in os.environ
    return can_meet and any(_number(name) > 1 for name in ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"))


def job_name() -> str:
    """What tells this job from others, the same on all its ranks; empty where the environment does not say."""
    return " ".join(os.environ[name] for name in _JOB_VARIABLES if name in os.environ)


def local_size() -> int:
    """How many ranks of the job run on this machine, as far as the environment says."""
    tasks = os.environ.get("SLURM_STEP_TASKS_PER_NODE", "").split("(")[0].split(",")[0]
    return max(1, *(_number(name) for name in _LOCAL_SIZE_VARIABLES), int(tasks) if tasks.isdigit() else 1)


def _number(name: str) -> int:
    value = os.environ.get(name, "")
    return int(value) if value.isdigit() else 0
