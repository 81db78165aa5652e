#!/usr/bin/env bash
# CIC on walker at laptop scale: one pre-training, its four tasks, and the same budget from scratch. About an hour on one core.
# Usage: results/walker-laptop/run.sh RUNS   (run folders go there; the records are copied beside this script)
set -euo pipefail
runs=${1:?give a folder for the runs}
cic=${CIC:-.venv/bin/cic}
here=$(dirname "$0")
[ -d "$runs/pretrain" ] || $cic pretrain --domain walker --normaliser std --seed 0 --out "$runs/pretrain"
for task in stand walk run flip; do
  [ -d "$runs/$task-cic" ] || $cic finetune "$runs/pretrain" --task walker-$task --seed 0 --out "$runs/$task-cic"
  [ -d "$runs/$task-scratch" ] || $cic finetune --scratch --task walker-$task --seed 0 --out "$runs/$task-scratch"
done
$cic report "$runs" --out "$runs/report"
for run in "$runs"/*/; do
  name=$(basename "$run")
  [ "$name" = report ] && continue
  mkdir -p "$here/data/$name"
  for file in config.json metrics.jsonl timing.jsonl result.json trials.json status.json; do
    [ -f "$run/$file" ] && cp "$run/$file" "$here/data/$name/"
  done
done
