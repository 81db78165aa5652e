#!/bin/sh
# Every method on point_mass and walker with a small budget: results/methods/run.sh RUNS, one run after another; finished
# ones are left alone, interrupted ones continue. Then: python results/methods/table.py RUNS
set -eu
runs=$1
pretrain() {
    out=$runs/$1; shift
    [ -e "$out/result.json" ] && return
    if [ -e "$out" ]; then cic pretrain --resume "$out"; else cic pretrain --out "$out" "$@"; fi
}
for seed in 0 1; do
    for domain in point_mass walker; do
        steps=20000
        common="--domain $domain --scale laptop --steps $steps --seed $seed --checkpoint-every $steps --compile on"
        pretrain $domain-random-$seed $common --objective fixed --warmup $steps
        for method in cic icm disagreement rnd apt proto smm diayn aps fixed; do
            pretrain $domain-$method-$seed $common --objective $method
        done
        pretrain $domain-cic_std-$seed $common --objective cic --normaliser std
    done
done
