"""`tarantella status` and `tarantella explain`: what a running job does, and why one has failed."""

from tarantella.inspection.explain import explain as explain
from tarantella.inspection.status import status as status
