# SPDX-License-Identifier: Apache-2.0
"""Pipelines: sources, steps and sinks in a small file, run on Spark.

Called by `magnetar pipeline`; a Python file declares one with `magnetar.spark.pipelines.pipeline.Pipeline`, a YAML file
with the same words. Spark's checkpoints hold how far a pipeline is; nothing here keeps positions of its own.
"""
