#!/usr/bin/env bash
# CIC on walker by the defaults: pre-training and four tasks; seeds 12 to 15, one core.
# Usage: results/walker-defaults/run.sh RUNS   (run folders, a report and tables go there)
set -euo pipefail
runs=${1:?give a folder for the runs}
cic=${CIC:-.venv/bin/cic}

once() { # FOLDER command …
  local out=$1
  shift
  [ -e "$out/result.json" ] || $cic "$@" --out "$out"
}

for seed in 12 13 14 15; do
  once "$runs/pretrain-$seed" pretrain --domain walker --seed $seed
  for task in stand walk run flip; do
    once "$runs/$task-cic-$seed" finetune "$runs/pretrain-$seed" --task walker-$task --seed $seed
  done
done
$cic report "$runs" --out "$runs/report" --data "$runs/tables"   # runs.csv, curves.csv.gz, trials.csv.gz: commit these
