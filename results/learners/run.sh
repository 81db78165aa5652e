#!/usr/bin/env bash
# Each learner from scratch on walker-walk, 50,000 steps, three seeds. Runs that are finished are left alone.
set -euo pipefail
out=${1:?give a folder for the runs}
for seed in 0 1 2; do
  for learner in ddpg td3 sac; do
    [ -e "$out/$learner-$seed/result.json" ] || cic finetune --scratch --task walker-walk --learner $learner --seed $seed \
      --steps 50000 --eval-every 10000 --out "$out/$learner-$seed" --quiet
  done
done
