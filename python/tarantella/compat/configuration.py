"""The settings of this process by the predecessor's names."""

from tarantella import settings


class Configuration:
    """The settings of the environment (`docs/settings.md`), read-only.

    Raises:
        InvalidArgumentError: a variable makes no sense, when it is looked at.

    Examples:
        >>> tnt.global_tnt_config.output_on_all_devices
        False
    """

    @property
    def gpus_per_node(self) -> int | None:
        """How many GPUs of each node are used, none if 0 or less; None: all."""
        return settings.gpus_per_node()

    @property
    def log_level(self) -> str:
        """DEBUG, INFO, WARNING or ERROR."""
        return settings.log_level()

    @property
    def log_on_all_devices(self) -> bool:
        """Whether all ranks log."""
        return settings.on_all_ranks("log")

    @property
    def output_on_all_devices(self) -> bool:
        """Whether all ranks show progress and summaries."""
        return settings.on_all_ranks("output")

    @property
    def tensorboard_on_all_devices(self) -> bool:
        """Whether all ranks write files for TensorBoard."""
        return settings.on_all_ranks("tensorboard")

    @property
    def fusion_threshold(self) -> float | None:
        """Bytes at which a bucket of gradients is closed, infinite for one bucket; None: chosen by the library."""
        return settings.fusion_threshold()

    def __repr__(self) -> str:
        names = [name for name, value in vars(Configuration).items() if isinstance(value, property)]
        return f"Configuration({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"


global_tnt_config = Configuration()
