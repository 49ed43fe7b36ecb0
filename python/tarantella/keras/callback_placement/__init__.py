"""Which rank runs which callback: wrappers that run one on the master or on all ranks, and agreement on what they change."""
