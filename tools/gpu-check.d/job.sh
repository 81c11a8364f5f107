# gpu-check: processes of one job. Sourced by tools/gpu-check, whose variables and helpers it uses.
# shellcheck shell=bash disable=SC2154,SC2034

# One line for each promise. On simgpu the race is short, and there is no PyTorch.
check_job() {
    local seconds=60 status=0
    can_run "$PROGRAMS/job_race"
    [ "$on_sim" = 0 ] || seconds=6
    JOB_ON_SIM=$on_sim JOB_SECONDS=${GPUCAP_CHECK_JOB_SECONDS:-$seconds} JOB_PYTHON_PATH=$GPUCAP_CHECK_PYTHON_PATH \
        "$GPUCAP_ROOT/tests/gpu/job/job_check.sh" "$BUILD" "$work/job" | tee "$work/job.log" || status=1
    figure "$(grep -c '^PASS ' "$work/job.log" || true) promises kept, $(grep -c '^FAIL ' "$work/job.log" || true) broken"
    return "$status"
}
