"""`fit` of an elastic job: ranks that are left when others are lost go on with the very step."""
