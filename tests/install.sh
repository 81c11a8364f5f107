#!/bin/sh
# What a user installs: exactly the expected files, none of which knows where it was built; gpucap runs from the
# installed place; uninstalling leaves nothing; packages hold the same files. All in a scratch folder.
#
# usage: tests/install.sh BUILD CMAKE VERSION CC CUDA_INCLUDE
set -eu
build=$1 cmake=$2 version=$3 cc=$4 cuda=$5
cpack=$(dirname "$cmake")/cpack
source=$(cd "$(dirname "$0")/.." && pwd)
for tool in pkg-config dpkg-deb readelf "$cpack"; do
    command -v "$tool" >/dev/null || {
        echo "skipped: no $tool here"
        exit 77
    }
done
unset DESTDIR
scratch=$(mktemp -d)
# The build folder keeps the lists of what its user installed from it.
mkdir "$scratch/kept" "$scratch/record" "$scratch/ledger"
find "$build" -maxdepth 1 -name 'install_*.txt' -exec mv {} "$scratch/kept/" \;
clean_up() {
    rm -f "$build"/install_*.txt
    cp -R "$scratch/kept/." "$build/"
    rm -rf "$scratch"
}
trap clean_up EXIT

fail() {
    echo "$*" >&2
    exit 1
}

# files FOLDER: what is in it.
files() {
    (cd "$1" && find . ! -type d | sed 's/^\.\///' | LC_ALL=C sort)
}

# same WHAT EXPECTED FOUND: both are lists of files.
same() {
    [ "$2" = "$3" ] || fail "$1 should have
$2
and has
$3"
}

# Which libgpucap_*.so there are depends on the libraries that the build found.
ours=$(LC_ALL=C sort <<LIST
bin/gpucap
include/gpucap.h
$(cd "$build" && printf 'lib/%s\n' libgpucap*.so)
lib/pkgconfig/gpucap.pc
share/bash-completion/completions/gpucap
share/doc/gpucap/LICENSE
share/doc/gpucap/copyright
share/man/man1/gpucap.1
share/zsh/site-functions/_gpucap
LIST
)

# knows_nothing_of_the_build FOLDER
knows_nothing_of_the_build() {
    for path in "$source" "$build"; do
        ! grep -rlF "$path" "$1" || fail "these files name $path"
    done
    for file in "$1"/bin/* "$1"/lib/*.so; do
        ! readelf -d "$file" | grep -E 'R(UN)?PATH' || fail "$file has a run path"
    done
}

# runs FOLDER: the command there caps a program that was compiled against what is there.
runs() {
    [ "$("$1/bin/gpucap" --version)" = "gpucap $version" ] || fail "gpucap --version says something else"
    flags=$(PKG_CONFIG_PATH=$1/lib/pkgconfig pkg-config --cflags --libs gpucap)
    [ "$(PKG_CONFIG_PATH=$1/lib/pkgconfig pkg-config --modversion gpucap)" = "$version" ]
    # shellcheck disable=SC2086 # a list of arguments
    "$cc" -fPIE -pie "$source/tests/install_prog.c" -I"$cuda" $flags -L"$build/sim" -lcuda -o "$scratch/prog"
    said=$(env -i HOME="$scratch" LD_LIBRARY_PATH="$build/sim" GPUCAP_SIM='1x256M;ctx=4M' GPUCAP_SIM_ID="install$$" \
        "$1/bin/gpucap" run --max=64M --reserve=0 --ledger="$scratch/ledger" -- "$scratch/prog" 2>"$scratch/said") ||
        fail "gpucap run: $(cat "$scratch/said")"
    [ "$said" = "$version 60" ] || fail "a program under gpucap should take 60 MiB of 64, but: $said"
}

# --- install, use, uninstall
"$cmake" --install "$build" --prefix "$scratch/place" --strip >/dev/null
mv "$build/install_manifest.txt" "$build/install_folders.txt" "$scratch/record/"
same "an installation" "$ours" "$(files "$scratch/place")"
knows_nothing_of_the_build "$scratch/place"
runs "$scratch/place"
for shell in bash zsh; do
    "$scratch/place/bin/gpucap" completion $shell >"$scratch/completion.$shell"
done
cmp "$scratch/completion.bash" "$scratch/place/share/bash-completion/completions/gpucap"
cmp "$scratch/completion.zsh" "$scratch/place/share/zsh/site-functions/_gpucap"
"$cmake" -DBUILD="$scratch/record" -P "$source/cmake/uninstall.cmake" >/dev/null
[ ! -e "$scratch/place" ] || fail "uninstalling left $(find "$scratch/place")"

# Folders that were there before stay, and so does what others put into new ones.
mkdir -p "$scratch/used/bin"
"$cmake" --install "$build" --prefix "$scratch/used" >/dev/null
mv "$build/install_manifest.txt" "$build/install_folders.txt" "$scratch/record/"
echo mine >"$scratch/used/share/man/man1/mine.1"
"$cmake" -DBUILD="$scratch/record" -P "$source/cmake/uninstall.cmake" >/dev/null
same "a folder with a file of others" "$(printf '%s\n' bin share share/man share/man/man1 share/man/man1/mine.1)" \
    "$(cd "$scratch/used" && find . -mindepth 1 | sed 's/^\.\///' | LC_ALL=C sort)"

# --- packages; making them leaves the lists of what was installed alone
echo /nowhere/train >"$build/install_manifest_harness.txt"
(cd "$build" && "$cpack" -B "$scratch/packages" >"$scratch/cpack.log" 2>&1) || fail "cpack: $(cat "$scratch/cpack.log")"
[ "$(cat "$build"/install_*.txt)" = /nowhere/train ] || fail "cpack changed the lists for uninstall"
cd "$scratch/packages"
dpkg-deb -x gpucap_"$version"_*.deb "$scratch/deb"
same "the .deb" "$(printf '%s\n' "$ours" | sed 's/site-functions/vendor-completions/')" "$(files "$scratch/deb/usr")"
same "the .deb outside /usr" usr "$(ls "$scratch/deb")"
knows_nothing_of_the_build "$scratch/deb/usr"
runs "$scratch/deb/usr"
mkdir "$scratch/tar"
tar -C "$scratch/tar" -xzf gpucap-"$version"-linux-*.tar.gz
folder=$(echo "$scratch"/tar/*)
same "the .tar.gz" "$ours" "$(files "$folder")"
runs "$folder"

# --- the harness, as a package of its own
harness='bin/ballast
bin/fleet
bin/scenarios
bin/train'
dpkg-deb -x gpucap-harness_"$version"_*.deb "$scratch/harness"
same "the harness's programs" "$harness" "$(files "$scratch/harness/usr" | grep ^bin/)"
same "the harness's manual pages" "fleet.1 scenarios.1 train.1" "$(cd "$scratch/harness/usr/share/man/man1" && echo ./* | sed 's/\.\///g')"
same "the harness's libraries" "" "$(files "$scratch/harness/usr" | grep ^lib/ | grep -v '^lib/libtrain_[a-z]*\.so$')"
if ldd "$build/train" | grep -q libpng; then
    dpkg-deb -f gpucap-harness_"$version"_*.deb Depends | grep -q libpng || fail "the harness's package does not depend on libpng"
fi
