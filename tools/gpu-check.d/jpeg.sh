# gpu-check: training from JPEG files. Sourced by tools/gpu-check, whose variables and helpers it uses.
# shellcheck shell=bash disable=SC2154,SC2034

JPEG_STEPS=80

# jpeg_rate NAME ARG...: images per second of train, as a line in jpeg.log; prints the rate.
jpeg_rate() {
    local name=$1 line
    shift
    line=$("$BUILD/train" --model=resnet50 --precision=bf16 --alloc=cache --graph --batch=128 --image=224 --classes=1000 \
        --steps="$JPEG_STEPS" --val-batches=1 --quiet "$@" 2>> "$work/jpeg.err") || true
    echo "$name $line" >> "$work/jpeg.log"
    line=$(printf '%s' "$line" | sed -n 's/.* samples_per_s=\([0-9.]*\).*/\1/p')
    echo "${line:-none}"
}

check_jpeg() {
    [ "$on_sim" = 0 ] || skip "there is no speed to measure on simgpu"
    [ -f "$BUILD/libtrain_cuda.so" ] || skip "no libtrain_cuda.so was built (nvcc is missing)"
    rm -rf "$work/photos" "$work/jpeg.log" "$work/jpeg.err"
    mkdir -p "$work/photos"
    "$BUILD/bench_data" --make="$work/photos" || skip "no JPEG files can be made here (libjpeg-dev is missing)"
    figure "resnet50, images/s: synthetic $(jpeg_rate synthetic), from JPEG decoded on the host $(jpeg_rate cpu \
        --data="$work/photos" --augment=gpu --decode=cpu), by nvJPEG $(jpeg_rate gpu --data="$work/photos" \
        --augment=gpu --decode=gpu)"
    cat "$work/jpeg.log" "$work/jpeg.err"
}
