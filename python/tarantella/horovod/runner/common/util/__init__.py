"""`horovod.runner.common.util`."""
