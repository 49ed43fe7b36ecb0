"""`tarantella doctor`, `status` and `explain`: what a machine has, what a running job does, and why one has failed."""

from tarantella.inspection.doctor import doctor as doctor
from tarantella.inspection.explain import explain as explain
from tarantella.inspection.status import status as status
