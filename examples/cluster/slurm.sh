#!/bin/bash
# A plan on Slurm: Ray's head on the first node, a worker on each, the sweep beside the head.
#
#   sbatch examples/cluster/slurm.sh plan.json /shared/sweep
#
# Submit it again for what is missing: finished runs stay, others go on from their last checkpoint.
#SBATCH --job-name=cic-sweep
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=32
#SBATCH --mem-per-cpu=3G
#SBATCH --time=24:00:00
#SBATCH --signal=B:TERM@300  # five minutes before the end: every run saves and stops
set -eu

plan=${1:?usage: sbatch slurm.sh PLAN OUT}
out=${2:?usage: sbatch slurm.sh PLAN OUT}
environment=${CIC_ENVIRONMENT:-$HOME/cic/.venv}  # the same on all nodes, with cic[sweep] in it
source "$environment/bin/activate"
export OMP_NUM_THREADS=1 RAY_USAGE_STATS_ENABLED=0
export RAY_AUTH_MODE=token  # or anyone in the network could run code here
export RAY_AUTH_TOKEN_PATH=${RAY_AUTH_TOKEN_PATH:-$HOME/.ray/auth_token}  # which all nodes must see
[ -e "$RAY_AUTH_TOKEN_PATH" ] || (umask 077; mkdir -p "$(dirname "$RAY_AUTH_TOKEN_PATH")"; openssl rand -hex 32 > "$RAY_AUTH_TOKEN_PATH")

mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${nodes[0]}
port=$((20000 + SLURM_JOB_ID % 20000))  # two jobs may share a node

srun --nodes=1 --ntasks=1 --nodelist="$head" \
    ray start --head --port="$port" --num-cpus="$SLURM_CPUS_PER_TASK" --include-dashboard=false --block &
sleep 15
if [ "${#nodes[@]}" -gt 1 ]; then
    srun --nodes=$((${#nodes[@]} - 1)) --ntasks=$((${#nodes[@]} - 1)) --exclude="$head" \
        ray start --address="$head:$port" --num-cpus="$SLURM_CPUS_PER_TASK" --block &
    sleep 15
fi

# In the background and with SIGTERM, because a shell passes no signal on while it waits for a command.
cic sweep "$plan" --out "$out" --address "$head:$port" &
sweep=$!
trap 'kill -TERM $sweep' TERM
wait $sweep || code=$?
[ "${code:-0}" -gt 128 ] && { wait $sweep || code=$?; }  # the trap ended the first wait, not the sweep
exit "${code:-0}"
