"""The environment variables that the launcher sets for a rank, or a process of the library for another.

The public ones are a contract with other starters (docs/settings.md). Nobody else sets those that begin with TNT_INTERNAL_.
The settings of the user's are in `settings.py`.
"""

RANK = "TNT_RANK"
"""This rank, from 0."""
SIZE = "TNT_SIZE"
"""How many ranks the job has."""
LOCAL_RANK = "TNT_LOCAL_RANK"
"""This rank among those on its machine, from 0."""
LOCAL_SIZE = "TNT_LOCAL_SIZE"
"""How many ranks the job has on this machine."""
RENDEZVOUS = "TNT_RENDEZVOUS"
"""The name of the abstract Unix-domain socket on which the ranks find each other."""
TOKEN = "TNT_TOKEN"
"""The job's secret: a process that does not know it cannot join."""
TOKEN_FILE = "TNT_TOKEN_FILE"
"""Where the secret is, without TNT_TOKEN: the library reads the first line of this file, or of standard input for ``-``."""
REPORT_FD = "TNT_INTERNAL_REPORT_FD"
"""A pipe on which a rank tells the launcher why its script failed: as `reporting.py` writes it."""
FLIGHT_RECORD = "TNT_INTERNAL_FLIGHT_RECORD"
"""Memory in which a rank records its calls, named as the pipe is: the launcher reads it (`launcher/show/flight_memory.py`)."""
JOINED = "TNT_INTERNAL_JOINED"
"""The rank and the number of the process that has joined as this rank. The programs that it starts inherit all that a rank is
given, but are no ranks."""
LAUNCHER = "TNT_INTERNAL_LAUNCHER"
"""Which launcher started the process: by it `tarantella --cleanup` finds left-over processes (`launcher/base/mark.py`)."""
JOB = "TNT_INTERNAL_JOB"
"""With --max-restarts or mpirun: the same in all starts of a job, on all its hosts; by it the launcher ends what one start has
left, and its ranks find each other before MPI is initialised."""
RESTART = "TNT_RESTART"
"""With --max-restarts: how often the job was started again, 0 at first."""
COMMITS = "TNT_INTERNAL_COMMITS"
"""With --max-restarts: a folder of the job's, in which states of `hvd.elastic` outlive a restart. The first commit makes it."""
THREADS_CHOSEN = "TNT_INTERNAL_THREADS_CHOSEN"
"""Set where the number of intra-op threads is a rank's share of the cores, which nobody asked for."""
CORES = "TNT_INTERNAL_CORES"
"""Set where the launcher has bound this rank to its share of the cores, which nobody asked for: the cores of all ranks here."""
LAUNCHER_ADDED = "TNT_INTERNAL_LAUNCHER_ADDED"
"""With --preload: the variables that the launcher added to its own environment before it started itself anew."""

ELASTIC = "TNT_INTERNAL_ELASTIC"
"""With --elastic: the number with which the launcher has started this rank, which it keeps when others are lost."""
NEWCOMER = "TNT_INTERNAL_NEWCOMER"
"""With --elastic: the rank that a newcomer will have, as far as the launcher knows, and with how many ranks the job began."""

OF_PLACE = (RANK, SIZE, LOCAL_RANK, LOCAL_SIZE, RENDEZVOUS, TOKEN)
"""The variables that say where in its job a rank is, and where it meets the others."""
OF_RANK = (*OF_PLACE, REPORT_FD, LAUNCHER)
"""The variables that each rank is given."""
OF_LAUNCHER = (*OF_RANK, FLIGHT_RECORD, THREADS_CHOSEN, CORES, RESTART, JOB, JOINED, COMMITS, ELASTIC, NEWCOMER)
"""The variables that the launcher sets and -x must not."""
