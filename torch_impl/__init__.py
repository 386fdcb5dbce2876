"""Reward fitting, signed PPO and DPO in PyTorch: the twin of `jax_impl`."""
