"""Names that scripts of the predecessor (Fraunhofer's Tarantella) use; `import tarantella as tnt` has them as `tnt.Group`, ...

New scripts need none of them:

    tnt.Allreduce, tnt.TensorAllreducer             tnt.all_reduce
    tnt.Broadcast, tnt.TensorBroadcaster            tnt.broadcast, tnt.broadcast_object, tnt.broadcast_variables
    tnt.Allgatherv, tnt.TensorAllgatherer           tnt.all_gather
    tnt.Barrier                                     tnt.barrier
    tnt.data.Dataset                                nothing: `tnt.Model` distributes any dataset itself
    tnt.global_tnt_config                           the environment (docs/settings.md)

`tnt.Group`, some of the job's ranks, and the collectives on it have no other name yet. Everything here is built on
`tarantella.collectives` and, for datasets, `tarantella.keras`; nothing outside of this package imports it.
"""
