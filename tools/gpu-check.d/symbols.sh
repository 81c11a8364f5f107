# gpu-check: the symbols that the library exports. Sourced by tools/gpu-check, whose variables and helpers it uses.
# shellcheck shell=bash disable=SC2154,SC2034

check_symbols() {
    local odd
    nm -D --defined-only "$LIBRARY" | awk '{ print $3 }' | sed 's/@.*//' | sort -u >"$work/symbols"
    odd=$(grep -v -E '^(cu[A-Z][A-Za-z0-9_]*|nvmlDevice[A-Za-z0-9_]*|dlsym|dlvsym|dlopen|dlmopen|dup2|dup3|freopen|freopen64|gpucap_[a-z0-9_]*|InitializeInjectionNvtx2)$' "$work/symbols") || true
    [ -z "$odd" ] || { figure "also exports: $(echo "$odd" | head -n 5 | paste -s -d ' ' -)"; return 1; }
    figure "$(wc -l <"$work/symbols") symbols"
}
