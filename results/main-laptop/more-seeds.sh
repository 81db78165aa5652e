#!/usr/bin/env bash
# Disagreement on the seeds on which CIC is at 0.80 (results/walker-defaults): pre-training and four tasks, one core.
# Usage: results/main-laptop/more-seeds.sh RUNS SEED …   (run folders go there; what is done is not run again)
set -euo pipefail
runs=${1:?give a folder for the runs}
cic=${CIC:-.venv/bin/cic}
shift

once() { # FOLDER command …
  local out=$1
  shift
  if [ -e "$out/result.json" ]; then return; fi
  if [ -e "$out" ]; then $cic "$1" --resume "$out" --quiet; else $cic "$@" --out "$out" --quiet; fi
}

for seed in "$@"; do
  once "$runs/pretrain-$seed" pretrain --domain walker --objective disagreement --seed "$seed"
  for task in stand walk run flip; do
    once "$runs/$task-$seed" finetune "$runs/pretrain-$seed" --task walker-$task --seed "$seed"
  done
done
