"""The settings of this process by name, to be looked at."""

from __future__ import annotations

from tarantella import settings


class Configuration:
    """What the environment says (`docs/settings.md`), read-only; the names are those of the variables, without `TNT_`.

    Raises:
        InvalidArgumentError: a variable makes no sense, when it is looked at.

    Example:
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
        return settings.log_on_all_devices()

    @property
    def output_on_all_devices(self) -> bool:
        """Whether all ranks show progress and summaries."""
        return settings.output_on_all_devices()

    @property
    def tensorboard_on_all_devices(self) -> bool:
        """Whether all ranks write files for TensorBoard."""
        return settings.tensorboard_on_all_devices()

    @property
    def fusion_threshold(self) -> float | None:
        """Bytes at which a bucket of gradients is closed, infinite for one bucket; None: chosen by the library."""
        return settings.fusion_threshold()

    def __repr__(self) -> str:
        names = [name for name, value in vars(Configuration).items() if isinstance(value, property)]
        return f"Configuration({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"


global_tnt_config = Configuration()
