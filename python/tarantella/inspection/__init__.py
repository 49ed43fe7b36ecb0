"""`tarantella doctor`, `status` and `explain`: they look at a machine, at a running job, and at a job that failed.

What lives here: the answers of the three commands, and finding the jobs of this user (`jobs`). What must not: reading flight
records and finding who waits for whom, which is `tarantella.flight`'s.
"""

from tarantella.inspection.doctor import doctor as doctor
from tarantella.inspection.explain import explain as explain
from tarantella.inspection.status import status as status
