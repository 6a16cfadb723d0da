"""Qwen3-Omni in stages: encoders, thinker, talker with code predictor, and windowed code2wav, behind `EnginePort`."""
