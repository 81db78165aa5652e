#!/bin/sh
# results/beyond-the-paper/run.sh RUNS SEED PART: the pre-trainings of this page, one after the other.
runs=$1 seed=$2 part=$3
run() { # METHOD DOMAIN STEPS [settings]
    method=$1 domain=$2 steps=$3; shift 3
    [ -e "$runs/$method-$domain-$seed/result.json" ] ||
        python -m cic.cli pretrain --objective "$method" --domain "$domain" --steps "$steps" --seed "$seed" --compile off \
            --quiet --out "$runs/$method-$domain-$seed" "$@"
}
case $part in
point_mass) for method in metra diayn cic; do run $method point_mass 20000; done ;;
walker) for method in visr becl csf dads; do run $method walker 20000 --preset urlb; done ;;
zero-shot) for method in fb hilp; do run $method walker 200000 --num-envs 8 --update-every 8; done ;;
zero-shot-longer)
    run hilp walker 200000 --num-envs 8 --update-every 4 --library 0 --compile on --saturation 1e-3 --distance-discount 0.96 ;;
zero-shot-target)
    run hilp walker 200000 --num-envs 8 --update-every 8 --library 0 --compile on --saturation 1e-3 --distance-discount 0.96 --tau 0.05 ;;
corners)
    for method in fb hilp; do
        run $method point_mass 120000 --num-envs 8 --update-every 8 --hidden 64 --batch 128
    done ;;
ant)
    settings="--num-envs 8 --update-every 8 --library 0 --compile on"
    run metra ant 344568 $settings --dual-start 1 --dual-lr 1e-3
    for method in diayn cic; do run $method ant 344568 $settings; done ;;
esac
