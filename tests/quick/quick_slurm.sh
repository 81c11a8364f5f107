#!/usr/bin/env bash
# Runs the batch script of the Slurm quick start as it stands in docs/guide.md, and what the guide says beside it: two
# tasks with a cap each and with a common one, a task prolog that loads the library, and a ceiling in /etc/gpucap.conf.
# One node, with daemons of its own from a scratch folder, which end with the test; it sees a copy of /etc. Other than in
# the guide: simulated cards, and a small test program in place of the user's.
#
# usage: tests/quick/quick_slurm.sh BUILD       exit status 77: no Slurm, or its daemons do not start here
set -u
build=$1
# shellcheck source-path=SCRIPTDIR source=quick_lib.sh
. "$(dirname "$0")/quick_lib.sh"
daemons=()
seconds=200 # for daemons to start, and for each job: ends a hang

clean_up() {
    [ ${#daemons[@]} = 0 ] || { kill "${daemons[@]}" && wait; } 2>/dev/null
    rm -rf "$scratch"
}

for tool in slurmctld slurmd sbatch srun sinfo scontrol; do
    command -v "$tool" >/dev/null || PATH=$PATH:/usr/sbin command -v "$tool" >/dev/null || skip "no $tool here"
done
[ "$(id -u)" = 0 ] || skip "slurmd needs root"
if [ -z "${QUICK_NAMESPACE:-}" ] && unshare --mount true 2>/dev/null; then
    QUICK_NAMESPACE=1 exec unshare --mount "$0" "$@"
fi
scratch=$(mktemp -d)
trap clean_up EXIT
own_etc=
mkdir "$scratch/etc" "$scratch/work"
if [ -n "${QUICK_NAMESPACE:-}" ] &&
    mount -t overlay -o "lowerdir=/etc,upperdir=$scratch/etc,workdir=$scratch/work" overlay /etc 2>/dev/null; then
    own_etc=1
fi

# write_configuration: no authentication, as only this test knows the ports.
write_configuration() {
    local port=$((20000 + $$ % 20000)) host
    host=$(hostname -s)
    mkdir "$scratch/state" "$scratch/spool" "$scratch/ledger"
    cat >"$scratch/slurm.conf" <<CONF
ClusterName=quick
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmdPort=$((port + 1))
SlurmUser=root
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
GresTypes=gpu
ReturnToService=2
StateSaveLocation=$scratch/state
SlurmdSpoolDir=$scratch/spool
SlurmctldPidFile=$scratch/slurmctld.pid
SlurmdPidFile=$scratch/slurmd.pid
TaskProlog=$scratch/prolog
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) Gres=gpu:1 State=UNKNOWN
PartitionName=all Nodes=$host Default=YES OverSubscribe=FORCE MaxTime=5
CONF
    echo 'Name=gpu File=/dev/null' >"$scratch/gres.conf"
    echo "#!/bin/sh" >"$scratch/prolog"
    chmod +x "$scratch/prolog"
    export SLURM_CONF=$scratch/slurm.conf
}

# start_daemons: until the node is idle.
start_daemons() {
    PATH=$PATH:/usr/sbin
    slurmctld -D >"$scratch/slurmctld.log" 2>&1 &
    daemons+=($!)
    slurmd -D >"$scratch/slurmd.log" 2>&1 &
    daemons+=($!)
    for _ in $(seq $((seconds * 5))); do
        [ "$(sinfo -h -o %T 2>/dev/null)" != idle ] || return 0
        kill -0 "${daemons[@]}" 2>/dev/null || break
        sleep 0.2
    done
    skip "Slurm's daemons do not start here: $(grep -h error "$scratch"/slurm*.log | tail -n 1)"
}

# submit WHAT: runs $scratch/job.sh, with what it prints in $scratch/said. (sbatch --wait looks every ten seconds.)
submit() {
    local id state=
    echo "+ sbatch: $1"
    id=$(cd "$scratch" && sbatch --parsable --output="$scratch/said" "$scratch/job.sh") || fail "sbatch ended with $?"
    for _ in $(seq $((seconds * 5))); do
        state=$(scontrol show job "$id" | sed -n 's/.*JobState=\([A-Z]*\).*/\1/p')
        case $state in PENDING | RUNNING | COMPLETING) sleep 0.2 ;; *) break ;; esac
    done
    sed 's/^/    /' "$scratch/said"
    [ "$state" = COMPLETED ] || fail "the job is $state"
}

# times NUMBER TEXT: that many lines have it.
times() {
    [ "$(grep -cF -- "$2" "$scratch/said")" = "$1" ] || fail "'$2' should be there $1 times:
$(cat "$scratch/said")"
}

# The program takes 4000 MiB, then 3000, and ends; of two tasks each does so only when the other has come as far.
cat >"$scratch/train" <<PROGRAM
#!/bin/sh
both_have() {
    [ "\${SLURM_NTASKS:-1}" = 2 ] || return 0
    until [ -e "$scratch/\$1.0" ] && [ -e "$scratch/\$1.1" ]; do sleep 0.1; done
}
{
    echo take 4000
    both_have 4000
    echo take 3000
    both_have 3000
} | "$build/tests/integration/prog_walk" | while read -r line; do
    echo "\$line"
    case \$line in
    *4000*) : >"$scratch/4000.\$SLURM_PROCID" ;;
    *3000*) : >"$scratch/3000.\$SLURM_PROCID" ;;
    esac
done
PROGRAM
chmod +x "$scratch/train"

write_configuration
start_daemons
echo "with $(sbatch --version)"
export PATH=$build:$PATH LD_LIBRARY_PATH=$build/sim GPUCAP_SIM=1x32G GPUCAP_SIM_ID=quick$$ GPUCAP_LEDGER=$scratch/ledger
blocks Slurm >"$scratch/guide.sh"
grep -q '^srun gpucap run --max=8G -- python3 train.py$' "$scratch/guide.sh" || fail "the guide's script has changed: $(cat "$scratch/guide.sh")"

# job SED-SCRIPT: the guide's script with the test's program, changed.
job() {
    sed -e "s|python3 train.py|$scratch/train|" -e "$1" "$scratch/guide.sh" >"$scratch/job.sh"
    rm -f "$scratch"/[34]000.*
}

job 's/--max=8G/--max=6G/'
submit 'the script, with a cap that refuses the second part'
times 1 'has 4000 MiB more'
times 1 "left of 6G (job's max)"
times 1 '3000 MiB more: out of memory'

job '1a #SBATCH --ntasks=2'
submit 'two tasks, a cap each'
times 2 'has 4000 MiB more'
times 2 'has 3000 MiB more'

job '1a #SBATCH --ntasks=2
s/--max=8G/--max=10G --group=two/'
submit 'two tasks, one cap of 10 GiB'
times 2 'has 4000 MiB more'
times 2 '3000 MiB more: out of memory'

printf '#!/bin/sh\necho export LD_PRELOAD=%s\necho export GPUCAP_MAX=6G\n' "$build/libgpucap.so" >"$scratch/prolog"
job 's/gpucap run.*-- //'
submit 'a task prolog that loads the library'
times 1 'left of 6G (max)'
times 1 '3000 MiB more: out of memory'

if [ -n "$own_etc" ]; then
    echo 'max = 5G' >/etc/gpucap.conf
    echo '#!/bin/sh' >"$scratch/prolog"
    job ''
    submit 'the script, with a ceiling'
    times 1 "left of 5G (job's max, from /etc/gpucap.conf)"
    times 1 '3000 MiB more: out of memory'
else
    echo "left out: the ceiling, because /etc cannot be replaced here"
fi
