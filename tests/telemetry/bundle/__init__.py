"""Tests of telemetry.bundle."""
