"""The variables that mpirun and srun set for a rank. They can be read before MPI is initialised."""

import os

from tarantella import variables

# identify a job: the same on all its ranks, different in the next job
_JOB_VARIABLES = (
    "OMPI_MCA_orte_precondition_transports",
    "PMIX_NAMESPACE",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
)
_LOCAL_SIZE_VARIABLES = (variables.LOCAL_SIZE, "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")


def started_by_mpi() -> bool:
    """Whether this process is one of several ranks of mpirun or srun, as in src/bootstrap/join.cpp."""
    if variables.SIZE in os.environ:
        return False
    if any(_number(name) > 1 for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")):
        return True
    can_meet = "PMIX_RANK" in os.environ or "PMI_RANK" in os.environ
    return can_meet and any(_number(name) > 1 for name in ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"))


def job_name() -> str:
    """A name of the job, the same on all its ranks; empty if the environment has none."""
    return " ".join(os.environ[name] for name in _JOB_VARIABLES if name in os.environ)


def local_size() -> int:
    """How many ranks of the job run on this machine, as the environment tells; at least 1.

    Ranks that meet on a local socket are all here. Those that meet over TCP may be anywhere: only their starter knows.
    """
    tasks = os.environ.get("SLURM_STEP_TASKS_PER_NODE", "").split("(")[0].split(",")[0]
    told = max(*(_number(name) for name in _LOCAL_SIZE_VARIABLES), int(tasks) if tasks.isdigit() else 0)
    if told == 0 and not os.environ.get(variables.RENDEZVOUS, "tcp://").startswith("tcp://"):
        return max(1, _number(variables.SIZE))
    return max(1, told)


def _number(name: str) -> int:
    value = os.environ.get(name, "")
    return int(value) if value.isdigit() else 0
