#!/usr/bin/env bash
# CIC on walker at laptop scale: pre-training, four tasks, and the same budget from scratch; four seeds, two at a time, one core each.
# Usage: results/walker-laptop/run.sh RUNS   (run folders, a report and tables go there)
set -euo pipefail
runs=${1:?give a folder for the runs}
cic=${CIC:-.venv/bin/cic}
before="--normaliser std --steps 100000 --num-envs 1 --update-every 2 --library 0"
after="--warmup 4000 --update-every 2 --batch 256 --search paper"

seed() {
  [ -d "$runs/pretrain-$1" ] || $cic pretrain --domain walker $before --seed "$1" --out "$runs/pretrain-$1"
  for task in stand walk run flip; do
    [ -d "$runs/$task-cic-$1" ] ||
      $cic finetune "$runs/pretrain-$1" $after --task walker-$task --seed "$1" --out "$runs/$task-cic-$1"
    [ -d "$runs/$task-scratch-$1" ] ||
      $cic finetune --scratch $after --task walker-$task --seed "$1" --out "$runs/$task-scratch-$1"
  done
}

(seed 0; seed 1) & even=$!
seed 2; seed 3
wait $even
$cic report "$runs" --out "$runs/report" --data "$runs/tables"   # runs.csv, curves.csv.gz, trials.csv.gz: commit these
