# gpu-check: programs of tests/integration, which check themselves. Sourced by tools/gpu-check, whose variables and helpers it uses.
# shellcheck shell=bash disable=SC2154,SC2034

PROGRAMS_AT_ONCE=8 # most of their time goes into starting
PROGRAM_SECONDS=60 # contexts take their time on a busy card

# Programs of tests/integration: program, ways, what is set under the library ('-': nothing), scenarios. A cap makes the
# card small for what must be refused; in front of make_way it is full. Not natively: a free or a close that waits keeps
# the driver from beginning a capture or opening a block. No way: those need two cards, crowd, takes_all
# and pool_* fill one (conformance runs the last alone), within_what_is_idle and kept_by_weights need a certain reserve,
# handed_over crashes the driver (two threads end one capture), and the others fork, clone or make contexts as it has only been tried
# on simgpu.
EACH_WAY=native,strict,deferred
WRAPPED=strict,deferred
PROGRAM_RUNS="prog_pointers $EACH_WAY - ranges ends attributes widths several_attributes several_as_alone freed ids
prog_pointers $EACH_WAY - sync_memops sync_memops_by_tokens sync_memops_at_rest backing dma_bufs whole_copies threads
prog_waits $EACH_WAY - flags flags_both two_contexts two_contexts_streams hosts_turn_later hosts_turn_then_flag
prog_captures $EACH_WAY - captures_beside_frees freed_beside_a_capture freed_into_a_graph allocated_into_a_graph
prog_captures $EACH_WAY GPUCAP_DECAY=0.02 capture_ends_with_context begins_beside_work begins_beside_another_stream
prog_captures $EACH_WAY GPUCAP_DECAY=0.02 begins_beside_a_context exported_beside_a_beginning begun_by_the_dead begun_twice
prog_captures $WRAPPED - begins_beside_a_free
prog_captures $WRAPPED GPUCAP_MAX=2500M room_beside_a_beginning
prog_waits native,strict - flags_ordered flags_then_ordered hosts_turn frees_beside_work
prog_waits $EACH_WAY GPUCAP_DECAY=0.02 contexts_end primaries_end detaches
prog_waits $WRAPPED GPUCAP_MAX=2G make_way refused_then_flag refused_all_then_flag releases_beside
prog_captures $WRAPPED GPUCAP_MAX=2G allocated_into_a_graph
prog_captures $EACH_WAY GPUCAP_MAX=2G told_beside_a_capture
prog_room $EACH_WAY - ordered_elsewhere
prog_room $WRAPPED GPUCAP_MAX=3G after_growth freed_elsewhere told_behind_work
prog_frameworks $WRAPPED GPUCAP_MAX=3G sleeps tokens decodes
prog_frameworks , - takes_all
prog_room , - ordered_by_none pool_grows_by_chunks pool_gives_back_empty_chunks pool_joins_no_gaps within_what_is_idle kept_by_weights
prog_ipc $EACH_WAY - share opened at_rest codes never_opened killed exporter_dies context_ends forks threads leave
prog_ipc $WRAPPED - freed_while_open unwrapped
prog_closes $WRAPPED - closed_under_work closed_while_context_ends closes_while_context_ends
prog_ipc $WRAPPED PROG_OTHER_MAX=750M not_charged
prog_closes $EACH_WAY GPUCAP_DECAY=0.5 forks_beside_a_close context_ends_beside_a_close captures_beside_closes
prog_closes $EACH_WAY GPUCAP_DECAY=0.5 closed_beside_a_capture closed_without_a_pool closed_after_a_green_context
prog_stopped $WRAPPED - known_exporter unknown_exporter closes_many dead_exporter children
prog_closes $WRAPPED - opens_beside_a_close
prog_stopped $EACH_WAY - dead_exporter
prog_stopped $WRAPPED - known_exporter unknown_exporter closes_many children
prog_closes , - closed_after_a_green_context closed_beside_a_failure
prog_pointers , - peers peers_pooled peers_early sync_memops_in_a_capture
prog_ipc , - cards clones
prog_closes , - closed_beside_a_failure open_that_fails opened_in_two_contexts opened_after_its_free
prog_limits $WRAPPED GPUCAP_MAX=3G behind_a_flag freed_behind_a_flag graph_with_flag reached_behind_a_flag exports
prog_limits native,strict GPUCAP_MAX=3G green_frees
prog_limits strict GPUCAP_MAX=3G freed_in_order_beside_work
prog_limits $WRAPPED GPUCAP_MAX=3G green_frees_later green_default_stream green_ends
prog_limits , - room_behind_a_flag without_context elsewhere pool_elsewhere stack_in_graph stack_with_room stack_on_second_card
prog_limits , - stack_after_reset stack_with_a_used_handle stack_beside_an_ended_context dependent_launch release_again create_again
prog_rare $EACH_WAY GPUCAP_MAX=3G green_second bare_second context_second compressed
prog_rare $WRAPPED GPUCAP_MAX=3G handles_without_a_context pools_destroyed_in_use pools_destroyed_behind_frees
prog_rare , - pools_destroyed_before_a_context_ends kept_and_freed_at_once freed_at_once_before_their_pool_ends
prog_rare $WRAPPED GPUCAP_ZERO=on filled_after_a_green_context
prog_rare $EACH_WAY GPUCAP_MAX=2G taken_in_a_green_context
prog_rare , - mapped_then_released mapped_and_held not_mappings host_pool many_pools
prog_rare , - stack_on_a_full_card code_on_a_full_card freed_in_another_context idle_is_kept_from_the_impossible
prog_rare , - freed_at_once fill_fails levels contexts_overlap grown_in_a_green_context
prog_rare , - stacks_in_pages refused_after_a_reset heap_set_again neighbour_without_a_context
prog_captures , - handed_over
prog_waits , - crowd forks_beside_work forks_beside_contexts
prog_waits , - context_beside_work context_beside_an_end late_context_beside_an_end"

# run_program PROGRAM SCENARIO WAY SETTING: a line in programs.failed if it does not end well.
run_program() {
    local run=$1.$2.$3 status=0 settings=(HOME=/nonexistent) # no user's own
    if [ "$3" != native ]; then
        settings+=(LD_PRELOAD="$LIBRARY" GPUCAP_POOL=on GPUCAP_FREE="$3")
        [ "$4" = - ] || settings+=("$4")
    fi
    [ "$on_sim" = 0 ] || settings+=(GPUCAP_SIM_ID="$GPUCAP_SIM_ID-$BASHPID") # a card for each
    timeout --kill-after=1 "$PROGRAM_SECONDS" env "${settings[@]}" "$BUILD/tests/integration/$1" "$2" \
        >"$work/$run.log" 2>&1 </dev/null || status=$?
    [ "$status" = 0 ] || echo "$run: status $status: $(head -n 3 "$work/$run.log" | paste -s -d ' ' -)" >>"$work/programs.failed"
}

# Scenarios that no line of PROGRAM_RUNS names.
unnamed_scenarios() {
    local program scenario
    for program in $(cut -d ' ' -f 1 <<<"$PROGRAM_RUNS" | sort -u); do
        for scenario in $("$BUILD/tests/integration/$program" --list); do
            grep -q "^$program .* $scenario\\( \\|\$\\)" <<<"$PROGRAM_RUNS" || echo "$program.$scenario: not in PROGRAM_RUNS"
        done
    done
}

check_programs() {
    local program ways setting scenarios scenario way runs=0
    unnamed_scenarios >"$work/programs.failed"
    while read -r program ways setting scenarios; do
        can_run "$BUILD/tests/integration/$program"
        for scenario in $scenarios; do
            for way in ${ways//,/ }; do
                [ "$runs" -lt "$PROGRAMS_AT_ONCE" ] || wait -n
                run_program "$program" "$scenario" "$way" "$setting" &
                runs=$((runs + 1))
            done
        done
    done <<<"$PROGRAM_RUNS"
    wait
    sort "$work/programs.failed"
    figure "$runs runs, $(wc -l <"$work/programs.failed") failed"
    [ ! -s "$work/programs.failed" ]
}
