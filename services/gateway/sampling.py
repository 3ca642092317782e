"""What sampling a request that names none gets."""

from services.gateway.config import GatewayConfig
from shared.errors import ConfigError
from shared.messages import Sampling
from shared.tokenizer import read_settings


def defaults(config: GatewayConfig) -> Sampling:
    """Options, else the checkpoint's generation_config.json, else greedy. The seed is not used.

    Raises:
        ConfigError: a value is out of range.
    """
    source = config.model / "generation_config.json"
    settings = read_settings(source)
    greedy = settings.get("do_sample") is False

    def pick(name: str, lowest: float, highest: float, fallback: float) -> float:
        own, where = getattr(config, name), "--" + name.replace("_", "-")
        value = own
        if own is None:
            value, where = settings.get(name), f"{name} in {source}"
            if value is None or (name == "temperature" and greedy):
                return fallback
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(f"{where} is not a number")
        if not lowest <= value <= highest:
            raise ConfigError(f"{where} is {value}; use {lowest:g} to {highest:g}")
        return value

    return Sampling(
        temperature=float(pick("temperature", 0, 100, 0.0)),
        top_p=float(pick("top_p", 1e-6, 1, 1.0)),
        top_k=int(pick("top_k", 0, 1_000_000, 0)),
        min_p=float(pick("min_p", 0, 1, 0.0)),
        seed=0,
    )
