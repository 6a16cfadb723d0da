"""What holds for every test."""

from hypothesis import HealthCheck, settings

# On a busy machine anything takes long: no example is judged by the clock, neither its making nor its run.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")
