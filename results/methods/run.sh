#!/bin/sh
# Every method on point_mass and walker with a small budget: results/methods/run.sh RUNS SEED, one run after another;
# finished ones are left alone, interrupted ones continue. Seeds 0 and 1 side by side, then:
# python results/methods/table.py RUNS
set -eu
runs=$1 seed=$2
pretrain() {
    out=$runs/$1; shift
    [ -e "$out/result.json" ] && return
    if [ -e "$out" ]; then cic pretrain --resume "$out"; else cic pretrain --out "$out" "$@"; fi
}
steps=20000
for domain in point_mass walker; do
    common="--domain $domain --scale laptop --steps $steps --seed $seed --checkpoint-every $steps --compile on"
    pretrain $domain-random-$seed $common --objective fixed --warmup $steps
    for method in cic icm disagreement rnd apt proto smm diayn aps fixed; do
        pretrain $domain-$method-$seed $common --objective $method
    done
    pretrain $domain-cic_std-$seed $common --objective cic --normaliser std
done
