"""Names that scripts of the predecessor (Fraunhofer's Tarantella) use; `import tarantella as tnt` has them as `tnt.Group`, ...

New scripts need none of them:

    tnt.Allreduce, tnt.TensorAllreducer             tnt.all_reduce
    tnt.Broadcast, tnt.TensorBroadcaster            tnt.broadcast, tnt.broadcast_object, tnt.broadcast_variables
    tnt.Allgatherv, tnt.TensorAllgatherer           tnt.all_gather
    tnt.Barrier                                     tnt.barrier
    tnt.data.Dataset                                nothing: `tnt.Model` distributes any dataset itself
    tnt.global_tnt_config                           the environment (docs/settings.md)
    tnt.tnt_initializer                             nothing: the first call that needs the job joins it
    tnt.keras.callbacks                             tnt.callbacks
    tnt.keras.losses, tnt.keras.metrics             nothing: they are for pipelines, and so is tnt.keras.utilities
    tnt.Sequential                                  tnt.Model(keras.Sequential(...))
    tnt.models.save_model, .model_from_config       model.save, tnt.Model.from_config
    tnt.get_master_rank                             0
    model.group, model.rank, model.barrier          tnt.get_rank, tnt.barrier
    model.dist_optimizer                            model.optimizer

`tnt.Group`, some of the job's ranks, and the collectives on it have no other name yet. Everything here is built on
`tarantella.collectives` and, for datasets and models, `tarantella.keras`. `tnt.Model` takes its old attributes from here.
"""
