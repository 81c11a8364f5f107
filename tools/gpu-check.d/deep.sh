# gpu-check: a plugin loaded with RTLD_DEEPBIND. Sourced by tools/gpu-check, whose variables and helpers it uses.
# shellcheck shell=bash disable=SC2154,SC2034

# deep WAY HOW WHAT EXPECTED: what prog_deep says with its plugin, under a cap that the plugin's 800 MiB would pass.
deep() {
    local plugin=$BUILD/tests/integration/libprog_deep_now.so said
    said=$(env LD_PRELOAD="$LIBRARY" GPUCAP_MAX=1400M GPUCAP_FREE="$1" "$BUILD/tests/integration/prog_deep" "$2" "$plugin" \
        "$3" 2>>"$work/deep.log") || said="status $?"
    [ "$said" = "$4" ] || { echo "$1 $2 $3: $said, not $4"; return 1; }
}

check_deep() {
    local status=0 way
    can_run "$BUILD/tests/integration/prog_deep"
    for way in strict deferred; do
        deep "$way" deep memory 'plugin 2 program 0' || status=1
        deep "$way" sealed memory 'plugin 0 program 2' || status=1
        deep "$way" deep work 'wrong 0' || status=1
        deep "$way" sealed work 'wrong 0' || status=1
    done
    figure "plugin bound to us: refused; not bound: found and counted; 400 frees behind its work"
    return "$status"
}
