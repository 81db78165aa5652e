#!/bin/sh
# results/beyond-the-paper/run.sh RUNS SEED: the pre-trainings of this page, one after the other.
runs=$1 seed=$2
run() { # METHOD DOMAIN STEPS [settings]
    method=$1 domain=$2 steps=$3; shift 3
    [ -e "$runs/$method-$domain-$seed/result.json" ] ||
        python -m cic.cli pretrain --objective "$method" --domain "$domain" --steps "$steps" --seed "$seed" --compile off \
            --quiet --out "$runs/$method-$domain-$seed" "$@"
}
for method in metra diayn cic; do run $method point_mass 20000; done
for method in csf visr becl dads; do run $method walker 20000; done
for method in fb hilp; do run $method walker 60000; done
