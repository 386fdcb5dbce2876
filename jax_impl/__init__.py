"""Reward fitting, signed PPO and DPO in JAX: the twin of `torch_impl`."""
